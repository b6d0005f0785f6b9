from toolpost.middleware.call import Call as Call
from toolpost.middleware.interface import CheckedResult as CheckedResult
from toolpost.middleware.interface import NextStep as NextStep
from toolpost.middleware.progress import ProgressNotification as ProgressNotification
from toolpost.providers import ProvidedTool as ProvidedTool
from toolpost.providers.input_required import is_input_required as is_input_required
