"""Pure functions DataFrame -> DataFrame: no reading, no writing, no clock."""
