from toolpost.admin.servers import act_on_server as act_on_server
from toolpost.admin.servers import report_process as report_process
from toolpost.admin.servers import report_server as report_server
from toolpost.admin.servers import report_servers as report_servers
