"""The local platform behind `./dev`: one checkout, one state directory, one supervisord.

Only the standard library may be imported here (`demo.py` excepted): these modules run before the
environment exists.
"""
