"""The paper's tables and figures, one function each: `lmc paper`."""
