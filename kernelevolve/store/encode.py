"""Nodes and proposals as journal data: the long texts leave the record and become artifacts, and come back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from kernelevolve import errors, records
from kernelevolve.store.artifacts import Artifacts


def pack_proposal(proposal: records.Proposal, artifacts: Artifacts) -> dict[str, Any]:
    """A proposal as JSON values, its source by hash under `source_sha256`."""
    data: dict[str, Any] = records.to_dict(dataclasses.replace(proposal, source=""))
    data["source_sha256"] = artifacts.put(proposal.source) if proposal.source else ""
    return data


def pack_node(node: records.Node, artifacts: Artifacts) -> dict[str, Any]:
    """A node as JSON values; source, log and profile by hash."""
    result = node.result
    slim = dataclasses.replace(result, log="", profile={}, proposal=dataclasses.replace(result.proposal, source=""))
    data: dict[str, Any] = records.to_dict(dataclasses.replace(node, result=slim))
    data["result"]["proposal"] = pack_proposal(result.proposal, artifacts)
    data["result"]["log_sha256"] = artifacts.put(result.log) if result.log else ""
    profile = json.dumps(records.to_dict(result.profile), default=str) if result.profile else ""
    data["result"]["profile_sha256"] = artifacts.put(profile) if profile else ""
    return data


def unpack_proposal(data: dict[str, Any], artifacts: Artifacts, lost: list[str]) -> records.Proposal:
    """The proposal with its source; an artifact that cannot be read leaves it empty and is named in `lost`."""
    source = _fetch(artifacts, data.get("source_sha256", ""), lost)
    return records.from_dict(records.Proposal, {**data, "source": source})


def unpack_node(data: dict[str, Any], artifacts: Artifacts, lost: list[str]) -> records.Node:
    """The node with its texts; artifacts that cannot be read are left empty and named in `lost`."""
    result = dict(data["result"])
    proposal = dict(result["proposal"])
    proposal["source"] = _fetch(artifacts, proposal.get("source_sha256", ""), lost)
    result["proposal"] = proposal
    result["log"] = _fetch(artifacts, result.get("log_sha256", ""), lost)
    result["profile"] = json.loads(_fetch(artifacts, result.get("profile_sha256", ""), lost) or "{}")
    return records.from_dict(records.Node, {**data, "result": result})


def _fetch(artifacts: Artifacts, digest: str, lost: list[str]) -> str:
    if not digest:
        return ""
    try:
        return artifacts.get(digest)
    except errors.StoreError as error:
        lost.append(str(error))
        return ""
