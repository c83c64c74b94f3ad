"""The `forebay` command without fences: what a claim says is believed for ever.

Only for the control of the tests of several gateways: their check must find out.
"""

from forebay.cli.main import main
from forebay.jobs.claims import ClaimedJob
from forebay.jobs.store import job_store as store
from forebay.jobs.store.schema import jobs

if __name__ == "__main__":  # never where it is only imported: the fences of others would go, too
    store._held = lambda job: (jobs.c.id == job.id,)
    revoke = ClaimedJob.revoke
    ClaimedJob.revoke = (  # type: ignore[method-assign] # nor is it told in time
        lambda self, reason: revoke(self, reason) if reason == "was stopped" else None
    )
    main()
