"""Windows: a Job Object around each command, which ends with the gateway's last handle to it. Part of `tree`; empty elsewhere."""

import sys

if sys.platform == "win32":
    import ctypes
    import struct
    import subprocess  # noqa: TID251 - this is process_tree
    from ctypes import wintypes

    import anyio
    import anyio.abc

    from toolpost.processes.command import PreparedCommand, make_start_error
    from toolpost.processes.strays import warn_unkilled

    class JobTree:
        """A command in a Job Object, which ends with the gateway's last handle and so with the gateway."""

        def __init__(self, command: PreparedCommand, process: anyio.abc.Process, job: int | None) -> None:
            assert process.stdout
            assert process.stderr
            self.stdin = process.stdin
            self.stdout = process.stdout
            self.stderr = process.stderr
            self._command = command
            self._process = process
            self._job = job

        @property
        def pid(self) -> int:
            return self._process.pid

        @property
        def returncode(self) -> int | None:
            return self._process.returncode

        async def wait(self) -> int:
            return await self._process.wait()

        async def end(self) -> None:
            """Give the command time to exit after the end of stdin, since there is no SIGTERM; then end the job."""
            if self._command.stdin:
                with anyio.move_on_after(self._command.eof_s + self._command.grace_s):
                    await self._process.wait()
            job, self._job = self._job, None
            if job is None or not _end_job(job):
                await _taskkill(self._process.pid)
            with anyio.move_on_after(0.5):
                await self._process.wait()
            if self._process.returncode is None:
                warn_unkilled(self._process.pid, "it is still there")

    async def start_in_job(command: PreparedCommand) -> JobTree:
        try:
            process = await anyio.open_process(  # noqa: TID251 - this is process_tree
                [command.path, *command.argv[1:]],
                stdin=subprocess.PIPE if command.stdin else subprocess.DEVNULL,
                cwd=command.cwd,
                env=command.environment,
                creationflags=subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP,
            )
        except OSError as error:
            raise make_start_error(command.argv[0], error.errno or 0) from error
        return JobTree(command, process, _new_job(process.pid))

    def _new_job(pid: int) -> int | None:
        """Put a process into a job that is killed when its handle closes; None where that is not allowed."""
        # JOBOBJECT_EXTENDED_LIMIT_INFORMATION: all zero, but KILL_ON_JOB_CLOSE in its LimitFlags.
        limits = bytearray(144 if sys.maxsize > 2**32 else 112)
        struct.pack_into("<I", limits, 16, 0x2000)
        kernel = _kernel32()
        job = kernel.CreateJobObjectW(None, None)
        process = kernel.OpenProcess(0x0101, False, pid)  # PROCESS_SET_QUOTA | PROCESS_TERMINATE
        is_set = kernel.SetInformationJobObject(job, 9, bytes(limits), len(limits))
        is_ready = is_set and kernel.AssignProcessToJobObject(job, process)
        if process:
            kernel.CloseHandle(process)
        if job and not is_ready:
            kernel.CloseHandle(job)
        return int(job) if is_ready else None

    def _end_job(job: int) -> bool:
        kernel = _kernel32()
        is_ended = kernel.TerminateJobObject(job, 1)
        kernel.CloseHandle(job)
        return bool(is_ended)

    def _kernel32() -> ctypes.WinDLL:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        handle, number = wintypes.HANDLE, wintypes.DWORD
        kernel.CreateJobObjectW.restype = handle
        kernel.CreateJobObjectW.argtypes = (wintypes.LPVOID, wintypes.LPCWSTR)
        kernel.OpenProcess.restype = handle
        kernel.OpenProcess.argtypes = (number, wintypes.BOOL, number)
        kernel.SetInformationJobObject.argtypes = (handle, ctypes.c_int, wintypes.LPVOID, number)
        kernel.AssignProcessToJobObject.argtypes = (handle, handle)
        kernel.TerminateJobObject.argtypes = (handle, wintypes.UINT)
        kernel.CloseHandle.argtypes = (handle,)
        return kernel

    async def _taskkill(pid: int) -> None:
        """End a process and its children; a process that is gone is no error."""
        with anyio.move_on_after(1.0):
            command = ["taskkill", "/pid", str(pid), "/T", "/F"]
            await anyio.run_process(command, check=False)  # noqa: TID251 - this is process_tree
