go mod tidy && go run .
