"""Messages of agent frameworks as entries; none of the frameworks is imported."""

from ombus.client.shapes.claude_agent import from_claude_agent
from ombus.client.shapes.langchain import from_langchain
from ombus.client.shapes.openai_agents import from_openai_agents

__all__ = ["from_claude_agent", "from_langchain", "from_openai_agents"]
