"""How findings are shown: a table, then the commands that mend them, one a line to copy."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rltrain.doctor.finding import Finding, Level

STYLES = {Level.FINE: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.MEND: "bold red"}


def print_report(findings: Sequence[Finding], *, console: Console) -> None:
    table = Table("", "", "found", "", box=None, pad_edge=False)
    for finding in findings:
        level = Text(finding.level.value, style=STYLES[finding.level])
        table.add_row(level, Text(finding.subject), Text(finding.found), Text(finding.remark))
    console.print(table)
    for finding in findings:
        if finding.command:
            console.print(Text(f"\n{finding.subject}:", style=STYLES[finding.level]))
            console.print(Text(f"  {finding.command}"), soft_wrap=True)
    num_mend = sum(finding.level is Level.MEND for finding in findings)
    num_warnings = sum(finding.level is Level.WARNING for finding in findings)
    console.print(
        f"\n{num_mend} to mend, {num_warnings} warnings" if num_mend or num_warnings else "\nEverything is fine."
    )
