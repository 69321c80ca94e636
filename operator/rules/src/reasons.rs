//! Every word that conditions and events use. `docs/conditions.md` explains each; a test compares.

/// Types of conditions.
pub mod types {
    /// The sidecar that the spec asks for is there.
    pub const READY: &str = "Ready";
    /// The operator is working on it; present only while true.
    pub const RECONCILING: &str = "Reconciling";
    /// Nothing goes on before somebody acts; present only while true.
    pub const STALLED: &str = "Stalled";
    /// The plan of the run is made.
    pub const PLANNED: &str = "Planned";
    /// The canary measured what the spec accepts.
    pub const CANARY_PASSED: &str = "CanaryPassed";
    /// Somebody else holds the output.
    pub const OUTPUT_LOCKED: &str = "OutputLocked";
    /// Workers wait for a node, or can't be started on it.
    pub const WORKERS_UNSCHEDULABLE: &str = "WorkersUnschedulable";
    /// Jobs wait until a queue lets them in.
    pub const QUEUED: &str = "Queued";
    /// The job is suspended.
    pub const SUSPENDED: &str = "Suspended";
    /// The run ended, with no more failures than the spec accepts.
    pub const COMPLETE: &str = "Complete";
    /// The run was given up.
    pub const FAILED: &str = "Failed";

    /// All of them, in the order in which a status has them.
    pub const ALL: [&str; 11] = [
        READY,
        RECONCILING,
        STALLED,
        PLANNED,
        CANARY_PASSED,
        OUTPUT_LOCKED,
        WORKERS_UNSCHEDULABLE,
        QUEUED,
        SUSPENDED,
        COMPLETE,
        FAILED,
    ];
}

/// Troubles that no time mends: where nothing else goes on, the job waits for a person.
pub const ONLY_A_PERSON: [&str; 3] = [JOB_REFUSED, FORBIDDEN, FOREIGN_JOB];

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $word;)*

        /// All reasons of conditions and events.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

reasons! {
    /// The run goes on.
    PROGRESSING = "Progressing";
    /// Something went wrong and is tried again.
    PROGRESSING_WITH_RETRY = "ProgressingWithRetry";
    /// Every shard is in the output.
    COMPLETED = "Completed";
    /// The run ended; some shards failed, no more than accepted.
    COMPLETED_WITH_FAILURES = "CompletedWithFailures";
    /// More shards failed than the spec accepts.
    TOO_MANY_FAILED_SHARDS = "TooManyFailedShards";
    /// The output lost shards again and again that workers had published.
    OUTPUT_INCOMPLETE = "OutputIncomplete";
    /// The spec has a mistake that no schema finds.
    INVALID_SPEC = "InvalidSpec";
    /// The dataset or pipeline changed after the run started, and the spec says `Reject`.
    SPEC_CHANGED_AFTER_START = "SpecChangedAfterStart";
    /// A run is being stopped so that another can begin.
    REPLACING_RUN = "ReplacingRun";
    /// The namespace is being deleted.
    NAMESPACE_GOING = "NamespaceGoing";
    /// The run is new.
    RUN_STARTED = "RunStarted";
    /// No output prefix was given; a new sibling was chosen.
    OUTPUT_CHOSEN = "OutputChosen";
    /// Another holder has the writer lock.
    HELD_BY_ANOTHER = "HeldByAnother";
    /// The writer lock was lost to another holder.
    LOCK_LOST = "LockLost";
    /// This job holds the writer lock.
    HELD_BY_THIS_JOB = "HeldByThisJob";
    /// The plan is made.
    PLANNED = "Planned";
    /// The main prefix has no shards.
    NO_SHARDS = "NoShards";
    /// The output prefix holds shards of something else.
    PREFIX_CONFLICT = "PrefixConflict";
    /// The store refuses access; asked for again now and then.
    ACCESS_DENIED = "AccessDenied";
    /// There is no such bucket; asked for again now and then.
    BUCKET_NOT_FOUND = "BucketNotFound";
    /// The store can't be worked with; asked for again now and then.
    STORE_UNUSABLE = "StoreUnusable";
    /// The plan can't be made for another reason.
    PLAN_IMPOSSIBLE = "PlanImpossible";
    /// The output prefix can't be locked, for a reason that waiting doesn't mend.
    OUTPUT_UNUSABLE = "OutputUnusable";
    /// What the run keeps beside the output can't be read.
    RUN_UNREADABLE = "RunUnreadable";
    /// The operator has no identity that it may use towards the store for this job.
    NO_IDENTITY = "NoIdentity";
    /// Nobody has allowed the operator to talk to the job's S3 service.
    ENDPOINT_NOT_ALLOWED = "EndpointNotAllowed";
    /// The workers would run as the operator itself.
    SERVICE_ACCOUNT_NOT_ALLOWED = "ServiceAccountNotAllowed";
    /// A prefix of the job is a path of the operator's own file system.
    PREFIX_NOT_ALLOWED = "PrefixNotAllowed";
    /// The Secret with the credentials is not there.
    SECRET_NOT_FOUND = "SecretNotFound";
    /// The operator may not read the Secret with the credentials.
    SECRET_FORBIDDEN = "SecretForbidden";
    /// The Secret lacks a key.
    SECRET_INCOMPLETE = "SecretIncomplete";
    /// The API server takes no such Job.
    JOB_REFUSED = "JobRefused";
    /// The API server lets the operator not do what has to be done.
    FORBIDDEN = "Forbidden";
    /// A Job of the name that is needed belongs to somebody else.
    FOREIGN_JOB = "ForeignJob";
    /// Something else refuses; the message says what.
    REFUSED = "Refused";
    /// The canary's Job was started.
    CANARY_STARTED = "CanaryStarted";
    /// The canary measured what is accepted.
    CANARY_PASSED = "CanaryPassed";
    /// The canary measured less than what is accepted.
    CANARY_REJECTED = "CanaryRejected";
    /// The canary passed, and the spec asks to wait for a person.
    PAUSED_AFTER_CANARY = "PausedAfterCanary";
    /// The Job of a batch was started.
    BATCH_STARTED = "BatchStarted";
    /// Lost work items were started again.
    BATCH_RETRIED = "BatchRetried";
    /// Work items of a batch were given up.
    BATCH_GAVE_UP = "BatchGaveUp";
    /// The number of workers was changed.
    SCALED = "Scaled";
    /// No node has room for a worker.
    UNSCHEDULABLE = "Unschedulable";
    /// A worker's container can't be started.
    CANNOT_START = "CannotStart";
    /// The API server takes no pods of the Job.
    FAILED_CREATE = "FailedCreate";
    /// A worker hangs, and is replaced.
    WORKER_SILENT = "WorkerSilent";
    /// A container runs on after the worker of its pod has ended.
    WORKER_OUTLIVED = "WorkerOutlived";
    /// A Job waits in its queue.
    WAITING_FOR_QUEUE = "WaitingForQueue";
    /// A Job was suspended by somebody else.
    SUSPENDED_BY_ANOTHER = "SuspendedByAnother";
    /// No Job waits any more.
    ADMITTED = "Admitted";
    /// Workers find nodes, and start.
    SCHEDULABLE = "Schedulable";
    /// The spec says so.
    SUSPENDED = "Suspended";
    /// The job goes on after it was suspended.
    RESUMED = "Resumed";
    /// The output is being listed against the plan.
    VERIFYING = "Verifying";
    /// Shards that workers had published are gone from the output, and are made again.
    SHARDS_MISSING = "ShardsMissing";
    /// The first shards failed.
    SHARDS_FAILED = "ShardsFailed";
    /// This version of the operator can't read the object.
    INVALID_OBJECT = "InvalidObject";
}
