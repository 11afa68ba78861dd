# It is on no package index yet. In a checkout of Highwater:
pip install .
