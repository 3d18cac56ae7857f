module example.test/names

go 1.21
