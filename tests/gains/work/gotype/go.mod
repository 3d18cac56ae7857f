module gotype

go 1.22
