from toolpost.processes.limits import limit_resources as limit_resources
from toolpost.processes.tree import CompletedCommand as CompletedCommand
from toolpost.processes.tree import Daemon as Daemon
from toolpost.processes.tree import LineListener as LineListener
from toolpost.processes.tree import Process as Process
from toolpost.processes.tree import open_process as open_process
from toolpost.processes.tree import run as run
