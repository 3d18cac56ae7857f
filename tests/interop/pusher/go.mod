module example.test/pusher

go 1.21
