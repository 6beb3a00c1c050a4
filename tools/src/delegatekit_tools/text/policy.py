"""The content security policy of a DelegateKit page: it runs and applies only its own content, and loads nothing."""

from __future__ import annotations

import base64
import hashlib


def content_policy(*, style: str, script: str = "") -> str:
    """The value of `Content-Security-Policy` for a page with one style sheet and one script.

    Args:
        style: the exact content of the `<style>` element.
        script: the same of `<script>`; "" for a page without any.

    All else is forbidden: other scripts and style sheets, style attributes, event handlers, the network, forms.
    """
    scripts = _source(script) if script else "'none'"
    return (
        f"default-src 'none'; style-src {_source(style)}; script-src {scripts}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _source(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
