"""The model servers that answer, behind one port."""
