"""Which of a job's planners the next stream goes to: a named one, or the one that a replica names. Pure.

```
  named, one after the other --(a replica has the job: it says which)--> that one
       ^                                                                    |
       +--------------------(its stream ends, or cannot be opened)----------+
```
"""

_MAX_REDIRECTS = 3
"""Redirects that are followed at once; then a rank waits, as replicas that redirect it in circles wait for a lease to
lapse.
"""


class PlannerRoute:
    """Remembers what replicas have said.

    Attributes:
        owner: Address of the replica that has the job; empty while that is not known.
    """

    def __init__(self) -> None:
        self.owner = ""
        self._named: tuple[str, ...] = ()
        self._index = 0
        self._num_redirects = 0
        self._is_redirect_due = False

    def choose(self, named: str) -> str:
        """The address of the next stream.

        Args:
            named: Addresses as the user has named them, with commas between.
        """
        addresses = tuple(named.split(","))
        if addresses != self._named:
            self._named, self._index, self.owner = addresses, 0, ""
        return self.owner or addresses[self._index]

    @property
    def is_named(self) -> bool:
        """Whether the address that was chosen last is one that the user has named."""
        return not self.owner or self.owner in self._named

    def note_redirect(self, owner: str) -> None:
        """A replica has said that another one has the job."""
        self.owner = owner
        self._num_redirects += 1
        self._is_redirect_due = self._num_redirects <= _MAX_REDIRECTS

    def take_redirect(self) -> bool:
        """Whether the next stream is to be opened at once; once for each redirect."""
        is_due, self._is_redirect_due = self._is_redirect_due, False
        return is_due

    def note_end(self) -> None:
        """A stream has ended, or could not be opened: the next named address is tried."""
        self._num_redirects = 0
        if not self.owner or self._named[self._index] == self.owner:
            self._index = (self._index + 1) % len(self._named)
        self.owner = ""
