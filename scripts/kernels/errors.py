"""What can go wrong, and the exit codes that say so."""

EXIT_TIMEOUT = 124
EXIT_FAILED = 125


class KernelError(Exception):
    """No result of COMMAND: one line with the reason and, where there is one, the remedy."""

    exit_code = EXIT_FAILED


class TimedOut(KernelError):
    """The guest was killed because its time was over."""

    exit_code = EXIT_TIMEOUT


class Interrupted(KernelError):
    """The guest was killed because this script got a signal."""

    def __init__(self, number: int, name: str) -> None:
        super().__init__(f"{name}: the guest was killed")
        self.exit_code = 128 + number
