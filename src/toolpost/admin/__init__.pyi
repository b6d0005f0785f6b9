from toolpost.admin.config_file import ConfigChange as ConfigChange
from toolpost.admin.config_file import ConfigFile as ConfigFile
from toolpost.admin.contracts import ContractChanges as ContractChanges
from toolpost.admin.files import TextFile as TextFile
from toolpost.admin.servers import act_on_server as act_on_server
from toolpost.admin.servers import report_process as report_process
from toolpost.admin.servers import report_server as report_server
from toolpost.admin.toml_file import TomlFile as TomlFile
