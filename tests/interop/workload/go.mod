module example.test/workload

go 1.21
