"""Errors of the broker's side: what Kafka refused, or did not answer.

* BrokerError           names the brokers or the topic, the fact and the way out
  x BrokerUnavailable   retryable: nobody answered in time, or too few replicas are in sync
  x NotPermitted        terminal: the principal may not do this
  x TopicMissing        terminal: there is no such topic, or nobody has opened it as a log
  x OtherLog            terminal: a log, but not the one that was asked for
  x BrokerRefused       terminal: it answered, and said no

An append that ends in ``BrokerUnavailable`` may have happened: append again, the first entry with
an id wins.
"""

from typing import Final

from aiokafka import errors as kafka_errors

from ombus_streams.runtime.errors import RetryableError, RuntimeFault, TerminalError


class BrokerError(RuntimeFault):
    """Brokers that cannot serve."""

    def __init__(self, what: str, fact: str, way_out: str) -> None:
        super().__init__(f"{what}: {fact}: {way_out}")
        self.what, self.fact, self.way_out = what, fact, way_out


class BrokerUnavailable(BrokerError, RetryableError):
    """Nobody answered in time, or the answer was: not now."""


class NotPermitted(BrokerError, TerminalError):
    """Refused at the door, or by an ACL."""


class TopicMissing(BrokerError, TerminalError):
    """No such topic, or a topic that nobody has opened as a log."""


class OtherLog(BrokerError, TerminalError):
    """A log of another cluster or topic, or one whose partitions contradict each other."""


class BrokerRefused(BrokerError, TerminalError):
    """The broker's own words are in ``fact``."""


_NOT_PERMITTED: Final = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.AuthenticationFailedError,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)
_UNAVAILABLE: Final = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.NotEnoughReplicasError,
    kafka_errors.NotEnoughReplicasAfterAppendError,
    # The producer's own sequence was cut by an earlier failure; a new producer starts a new one.
    kafka_errors.OutOfOrderSequenceNumber,
    kafka_errors.UnknownProducerId,
    kafka_errors.ProducerFenced,
    kafka_errors.ProducerClosed,
    kafka_errors.ConsumerStoppedError,
    TimeoutError,
    OSError,
)


def broker_error(what: str, cause: Exception) -> BrokerError:
    """Return the typed error for what the Kafka client said about ``what``."""
    fact = str(cause) or type(cause).__name__
    if isinstance(cause, _NOT_PERMITTED):
        return NotPermitted(what, fact, "see `ombus topics acl` for what each role needs")
    if isinstance(cause, kafka_errors.UnknownTopicOrPartitionError):
        return TopicMissing(what, fact, "create it with `ombus topics apply`")
    is_retriable = isinstance(cause, kafka_errors.KafkaError) and cause.retriable
    if isinstance(cause, _UNAVAILABLE) or is_retriable:
        return BrokerUnavailable(what, fact, "look at the brokers, and try again")
    return BrokerRefused(what, fact, "see the broker's log")
