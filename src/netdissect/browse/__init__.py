"""A capture on the whole terminal: five views with one selection. Views and keys know no terminal;
`app` puts what they draw on it, and is the only module that imports Textual.
"""
