"""An HTML page as tests look at it."""

from html.parser import HTMLParser

EMPTY = ("meta", "link", "base", "br", "img", "input", "hr")


class Page(HTMLParser):
    """What a page holds: its elements, its text, and the cells of its tables."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.tables, self.titles = [], [], [], []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if self.open[-1:] == ["title"] and "svg" in self.open:
            self.titles.append(data)
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data + " "

    def rows(self, table=0):
        return [[" ".join(cell.split()) for cell in row] for row in self.tables[table]]

    def with_class(self, name):
        return [attrs for _, attrs in self.elements if name in (attrs.get("class") or "").split()]
