"""The console: pages for people, each of which calls the use case of an API operation.

A page is a route with one template and one function. `routes` has the rules that hold for all of them, `rendering` the
shell around each, `charts` all geometry. Assets lie in `assets`; `make assets` fetches those that others wrote.
"""
