module example.test/matcher

go 1.21
