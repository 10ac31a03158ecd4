//! Small programs run against an engine in virtual time.
