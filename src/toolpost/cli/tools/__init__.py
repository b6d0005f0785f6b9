"""`toolpost tools`: list the tools, find some, or show one."""
