python quickstart.py
