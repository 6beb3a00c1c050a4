"""DelegateKit's runtimes inside ExecuTorch's runtime of this machine.

    import delegatekit_executorch.host

registers the delegate of each installed backend that ExecuTorch's library does not have. From then on
`executorch.runtime`, its bindings of modules and programs, its runner of language models, bundled programs and ETDump
run files for these backends.
"""

from __future__ import annotations

from .failures import last_error
from .registration import Registered, register, register_all, registered

__all__ = ["Registered", "last_error", "register", "registered"]

register_all()
