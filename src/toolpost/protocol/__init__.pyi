from toolpost.protocol.era import PROTOCOL_VERSION as PROTOCOL_VERSION
from toolpost.protocol.lines import OversizedLine as OversizedLine
from toolpost.protocol.rpc import encode as encode
from toolpost.protocol.shape import BadShape as BadShape
from toolpost.protocol.shape import check_shape as check_shape
