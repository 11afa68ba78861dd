node quickstart.js
