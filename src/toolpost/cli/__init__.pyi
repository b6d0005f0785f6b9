from toolpost.cli.call.command import call_and_show as call_and_show
from toolpost.cli.doctor.servers import missing_command as missing_command
from toolpost.cli.local_gateway import open_local_gateway as open_local_gateway
from toolpost.cli.plugin_server import serve_plugin as serve_plugin
from toolpost.cli.serve import ServedGateway as ServedGateway
from toolpost.cli.serve import ServeOptions as ServeOptions
from toolpost.cli.serve import serve_options as serve_options
