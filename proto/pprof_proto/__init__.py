"""The pprof schema: its generated classes in `profile_pb2`, and `other_formats` names what is no profile."""
