go mod init quickstart
go get github.com/apache/rocketmq-client-go/v2@v2.1.2
