module example.test/logsum

go 1.21
