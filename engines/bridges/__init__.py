"""Plans whose values wait on the host: sequences of computes, and the gaps that it bridges."""
