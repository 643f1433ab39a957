"""Keys and scripts of the grant maps in Redis.

All keys of a partition have one hash tag, so a script may touch them together on a cluster, too:

* ``ombus:{g<partition>}:<incarnation>:<version>:head`` hash: ``generation``, ``next``, ``digest``
* ``…:generations`` hash: generations that exist, and since when they do
* ``…:<generation>:owners`` set: the keys that have a map in it
* ``…:<generation>:of:<tenant>/<owner session>`` hash: scope id to its ``ScopeGrants``

A map and the watermark change in one script or not at all. A generation is written beside the
current one and becomes it in one step, if it is whole: a failover may have lost a part of it.
"""

from typing import Final

from ombus_streams.memory.owner_grants import GRANTS_VERSION


class Layout:
    """The keys of one partition of one grants log."""

    def __init__(self, incarnation: str, partition: int) -> None:
        self._prefix = f"ombus:{{g{partition}}}:{incarnation}:{GRANTS_VERSION}:"
        self.head = self._prefix + "head"
        self.generations = self._prefix + "generations"

    def owners(self, generation: str) -> str:
        return f"{self._prefix}{generation}:owners"

    def owner(self, generation: str, key: bytes) -> str:
        return f"{self._prefix}{generation}:of:{key.decode()}"


READ: Final = """
local head = redis.call('HMGET', KEYS[1], 'generation', 'next')
if not head[1] then return {} end
if head[1] ~= ARGV[1] then return {head[1]} end
return {head[1], head[2], redis.call('HGET', KEYS[2], ARGV[2])}
"""
"""KEYS: head, the owner's map in the generation of ARGV[1]. Another generation is named back."""

ADVANCE: Final = """
local head = redis.call('HMGET', KEYS[1], 'generation', 'next', 'digest')
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] or head[3] ~= ARGV[3] then return 0 end
local at = 6
for i = 3, #KEYS do
  redis.call('SADD', KEYS[2], ARGV[at])
  local past = at + 2 + 2 * tonumber(ARGV[at + 1])
  for field = at + 2, past - 1, 2 do
    redis.call('HSET', KEYS[i], ARGV[field], ARGV[field + 1])
  end
  at = past
end
redis.call('HSET', KEYS[1], 'next', ARGV[4], 'digest', ARGV[5])
return 1
"""
"""KEYS: head, owners, the maps that change. ARGV: generation, next and digest it must stand at,
those it stands at afterwards; then for each map its owner, the number of fields, and the fields."""

PUT: Final = """
redis.call('SADD', KEYS[1], ARGV[1])
for field = 2, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[field], ARGV[field + 1]) end
return 1
"""
"""KEYS: owners and a map of a generation that is not current yet. ARGV: the owner, the fields."""

FLIP: Final = """
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return 'swept' end
if redis.call('SCARD', KEYS[3]) ~= tonumber(ARGV[4]) then return 'torn' end
local held = redis.call('HGET', KEYS[1], 'next')
if held and tonumber(held) > tonumber(ARGV[2]) and ARGV[5] ~= 'over' then return 'behind' end
redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'next', ARGV[2], 'digest', ARGV[3])
return 'done'
"""
"""KEYS: head, generations, owners of the new one. ARGV: generation, next, digest, number of owners,
and ``over`` when the log itself says that what is held cannot be."""

RETIRE: Final = """
if redis.call('HGET', KEYS[1], 'generation') == ARGV[1] then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
"""
"""KEYS: head, generations. ARGV: a generation. After 1 nobody can make it current."""
