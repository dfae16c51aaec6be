"""Tool calls written as text: one table of forms, a reader per kind of form, one scanner."""
