"""Reports: runs compared on one HTML page that needs no network."""

from lmc.report.page import write_report

__all__ = ["write_report"]
