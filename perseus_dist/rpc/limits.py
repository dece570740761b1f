"""How large and how long anything on the wire may be. Both sides hold to these: beyond them is an error."""

MAX_AGENT_MESSAGE_BYTES = 4 << 20
MAX_PLANNER_MESSAGE_BYTES = 64 << 20
MAX_TABLE_BYTES = 512 << 20
"""Of a plan table once decompressed: 100,000 instructions of a rank at 2,684 points."""

MAX_ITERATIONS = 256  # of a telemetry message
MAX_KIND_TIMES = 8  # of an iteration
MAX_TIMED_RUNS = 1 << 16  # of an iteration
MAX_SAMPLES = 4096  # of a message; a saved profile with more rows travels in several
MAX_VERDICTS = 256  # of a job's status
MAX_EVENTS = 64

MAX_PATTERNS = 64  # of job names, in a policy or a token's role

MAX_NODE_FRAMES = 4096  # of a message of a node relay
MAX_CHANNELS = 256  # of a node stream at once
MAX_FRAMING_BYTES = 8 << 10  # around the messages of a node stream, which is within the bounds above
MAX_TOKEN_LENGTH = 4096

MAX_SIZE = 1 << 20  # ranks in any direction
MAX_CHUNK = 4095
MAX_VERSIONS = 16  # of a workload
MAX_FINDINGS = 32  # of an agent that attaches
MAX_MEMORY_MIB = (1 << 31) - 1
MAX_CLOCK_MHZ = 20_000
MAX_CLOCKS = 1024
MAX_POINTS = 1 << 20
MAX_INSTRUCTIONS = 1 << 20
MAX_ITERATION = 1 << 53
MAX_COUNT = (1 << 63) - 1  # counters and revisions: what SQLite holds
MAX_RUNS = (1 << 31) - 1

MAX_SECONDS = 1e7
MAX_JOULES = 1e12
MAX_WATTS = 1e6
MIN_CELSIUS = -100.0
MAX_CELSIUS = 1e3
MAX_SLOWDOWN = 1e3
MAX_DEGREE = 100.0  # that an operator may report of a straggler
MIN_TIME_RATIO = 1e-3
MAX_TIME_RATIO = 1e3
MAX_TOKENS = 1e15  # of an iteration

MAX_JOB_ID_LENGTH = 128
JOB_PATTERN = rf"[A-Za-z0-9._*?-]{{1,{MAX_JOB_ID_LENGTH}}}"  # a regular expression: names, with wildcards
MAX_NAME_LENGTH = 128
MAX_SENTENCE_LENGTH = 1024
