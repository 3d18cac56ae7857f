module example.test/served

go 1.21
