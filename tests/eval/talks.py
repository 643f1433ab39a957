"""Small conversations in the LoCoMo format."""

from ombus.eval.locomo import Conversation, Question, Turn

SAID = (
    "Hey Bo, how are you? It has been such a long time since we talked.",
    "I moved to Ghent in March and started as a surveyor at Meridian Textiles.",
    "Wow, that is great! I am so happy for you, you must be proud.",
    "My sister taught me to make plum cake from a card that our grandmother wrote.",
    "Haha, that sounds lovely, you have to tell me more some time.",
    "We adopted a greyhound called Pickle from the shelter on Mill Lane last Friday.",
    "Aww, so cute! What a good idea, I hope to see you soon.",
    "The landlord wants to sell the flat, so we must leave before the end of November.",
    "Oh no, I am so sorry to hear that. Let me know if I can help you.",
    "Thanks, that means a lot to me, really.",
)


def talk(*questions: Question, said: tuple[str, ...] = SAID) -> Conversation:
    """Return two people speaking in turn, with questions about it."""
    turns = [
        Turn(speaker=("Ann", "Bo")[n % 2], dia_id=f"D1:{n + 1}", text=text)
        for n, text in enumerate(said)
    ]
    return Conversation(
        sample_id="t", speakers=("Ann", "Bo"), sessions={"session_1": turns}, questions=questions
    )


def asked(answer: str, *evidence: str, category: int = 4) -> Question:
    return Question(question="?", answer=answer, evidence=evidence, category=category)
