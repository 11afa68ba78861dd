npm install ali-ons@3.12.0
