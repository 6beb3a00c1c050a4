"""DelegateKit's backends inside ExecuTorch: in its export pipeline and in its runtime of the host."""
