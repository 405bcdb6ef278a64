"""The base of all errors, and the tree of all errors, each with the module that defines it.

PenstockError
    NoOffsets  (audit.columns)
    BadField  (audit.fields)
    BadDecoder  (audit.matching.decoder)
    UnreadableReceipt  (audit.reports.receipt)
    SourceUnavailable  (audit.source)
    TableUnreadable  (audit.tables.table)
        FileIsGone
    NoAnswer  (cli.listener.listeners)
    BadQuery  (cli.tables.pipeline)
    Gone  (client.log.flight_reads)
    ClientError  (client.log.types)
        Damaged
        Exhausted
        NoSuchTopic
        NoSuchTransaction
        OutOfSequence
            StoredAlready
        Refused
            NotAllowed
            TopicExists
        TransactionTimedOut
        Unavailable
        Unsupported
    BadRelayPosition  (client.relay.positions)
    BadExport  (client.tail.journal_export)
    BadState  (client.tail.positions)
        BadJournalPosition  (client.tail.journal_position)
        BadPositions
    Unusable  (config.keys.security.contexts)
    BadPath  (config.syntax.json_path)
    ConfigError  (config.units)
    DaemonUnavailable  (console.daemon_poll)
    Refused  (console.login)
    UnknownColumn  (console.pages.table)
    ReadOnly  (console.people)
    BadUsers  (console.users)
    CannotRead  (drill.kafka)
    NotBack  (drill.pipe)
    FileError  (files.errors)
        DamagedFile
        Locked
        UnknownFormat
        UnsafeFile
            NotAFile
    RoutesUnknown  (handover.drain.drain)
    GaveUp  (handover.writer)
    NoRoom  (ingest.receiver)
    ClientLeft  (ingest.requests.large_requests)
    CannotListen  (ingest.sockets)
    CannotFetch  (java.jars)
    NoJava  (java.runtime)
    CannotClassify  (kafka.absent_offsets)
    BadAuditorSetting  (kafka.auditing.interval_auditor)
    StatsClosed  (kafka.auditing.stats)
    CannotStart  (kafka.broker)
    RequestFailed  (kafka.broker_connection)
    UnsupportedSecurity  (kafka.broker_connection)
    BadProperty  (kafka.client.config)
    NotDecrypted  (kafka.client.plugins.encryption)
    CannotLoad  (kafka.client.plugins.loading)
    BadRecords  (kafka.errors)
        BatchTooLarge
        UnknownCodec
        BadChecksum  (server.kafka.errors)
        InvalidTimestamp  (server.kafka.errors)
    KafkaAway  (kafka.errors)
    LargeMessageError  (kafka.errors)
        InvalidChunk
        InvalidOffset
        MessageDropped
        NoCommittedOffset
        OffsetNotTracked
        RecordFailed
        RecordsFailed
        SendFailed
        Skip
    BadConnection  (landing.daemon_connection)
    BadRun  (landing.duplicates.hash_run)
    CannotReadBack  (landing.from_kafka.read_back)
    PipelineRunning  (landing.landing_lock)
    BadCondition  (landing.requests.conditions)
    SchemasUnknown  (landing.rows.type_schemas)
    StoreError  (landing.storage.object_errors)
        TablesAway
            TablesFull
        TablesRefused
    SchemaDiffers  (landing.table.delta_table)
    TableChanged  (landing.table.delta_table)
    VectorNotApplicable  (landing.table.delta_table)
    FeatureNotWritten  (landing.table.features)
    AnotherWriter  (landing.table.one_writer)
    OffsetsRestarted  (landing.topics.continuity)
    DataLoss  (landing.topics.topic_store)
    BadRows  (landing.transform.checked)
    BadTransform  (landing.transform.rules)
    TypedTableAhead  (landing.typed.typed_tables)
    TableMovedOn  (landing.writing.batch_commit)
    BadCheckpoint  (ledger.book.checkpoint)
    BadPost  (ledger.posts)
    LacksPosts  (ledger.posts)
    LogError  (log.errors)
        CorruptBatch
        ForeignTransaction
        InvalidSetting
        InvalidTopicName
        LogClosed
        LogFull
        LogLocked
        MessageTooLarge
        OutOfSequence
            StoredAlready
        TooManyTopics
        TopicExists
        TransactionTimedOut
        UnknownFormat
        UnknownTopic
        UnknownTransaction
        WriteFailed
            OutcomeInDoubt
        BadFilter  (log.read.filter_syntax)
    NotCut  (log.errors)
    LogBufferError  (logbuffer.errors)
        NotAReaderPosition  (handover.positions.position)
        Busy
        Lapped
        MessageTooLarge
        NotALogBuffer
        Refused
            AdminAction
            BackPressured
            Closed
            MaxPositionExceeded
            NotConnected
        UnsupportedProcessor
    FreezeTooLong  (process.freeze)
    ReportFailed  (process.ledger_posts)
    BodyTooSlow  (process.servers.http_limits)
    TinyChunks  (process.servers.http_limits)
    TooManyBodies  (process.servers.http_limits)
    LedgerAway  (proof.posts.ledger_client)
    LedgerRefused  (proof.posts.ledger_client)
    BadBatch  (records)
    NotDelivered  (server.alarms.delivery)
    BadFlightData  (server.flight.batch_messages)
    CallEnded  (server.grpc.calls)
    BadFrame  (server.kafka.errors)
    TakesLong  (server.kafka.errors)
    UnansweredRefusal  (server.kafka.errors)
    Refused  (server.kafka.groups.group_state)
    AddressUnavailable  (server.servers)
    BadSettings  (sinks.handler)
    ApiError  (slogd.errors)
        Aborted
        AlreadyExists
        BadRequest
            UnknownEncoding
        Busy
        Damaged
        Exhausted
            TooLong
        NoSuchTopic
        NotAllowed
        NotFound
        OutOfOrder
        TooSlow
        Unauthenticated
        Unavailable
            InDoubt
            Stopping
    DiskFull  (spark.pipeline)
    MachineTooBusy  (spark.pipeline)
    SparkGone  (spark.pipeline)
    PositionForgotten  (spark.query.checked_reader)
    BadSchema  (spark.query.type_schemas)
    SparkNotStarted  (spark.session)
    PlanGoesBack  (spark.source.interfaces)
    BadOption  (spark.source.options)
    UnknownSpark  (spark.versions)
    StateElsewhere  (sql.cut)
    TableTooBusy  (sql.cut)
    RightsUnknown  (sql.postgres.access)
    WrongPassword  (sql.postgres.access)
    ProtocolViolation  (sql.postgres.messages)
    BadParameter  (sql.postgres.parameters)
    StatementFailed  (sql.postgres.session.preparation)
    UnknownReason  (sql.quarantined)
    BadQuery  (sql.query)
    AlreadyRunning  (supervise.data_directory)
    NotRunning  (supervise.instances)
    NoAnswer  (supervise.reload)
    NoSuchView  (tables)
    PipeFailed  (testing.pipe)
    CannotBackfill  (upkeep.backfill_planner)
    BackupError  (upkeep.backup)
    CatalogFailed  (upkeep.catalog_entries)
    BadPosition  (upkeep.changes)
    NoSuchSource  (upkeep.changes)
    TableChanging  (upkeep.changes)
    UnknownWay  (upkeep.explain)
    NotComparable  (upkeep.export.check)
    TargetAway  (upkeep.export.target)
    TargetInUse  (upkeep.export.target)
        TargetOwned
    TargetMoved  (upkeep.export.target)
    NotMirrored  (upkeep.iceberg.mirrored_table)
        ForeignFiles
    CannotSend  (upkeep.promote.kafka_writer)
    CannotMove  (upkeep.promote.promotion)
    BadFix  (upkeep.quarantine.fixes)
    SendingBack  (upkeep.quarantine.send_back)
    CheckpointLost  (upkeep.repair.checkpoint_rebuild)
    SourceDiffers  (upkeep.repair.checkpoint_repair)
    BrokenFile  (upkeep.trace.tracer)
    NoSuchTopic  (upkeep.trace.tracer)
    CannotRestore  (upkeep.typed.fill)
    NotBegun  (upkeep.typed.fill)
    ColumnsNotConfigured  (upkeep.typed.refill)
    RefillWaits  (upkeep.typed.refill)
    NotForward  (wire.forward.event_rows)
    NotJson  (wire.json_text)
    Malformed  (wire.protobuf)
        TooManyFields
    Refused  (wire.requests)
    Bomb  (wire.unpacking)
        ImpossibleSize
    NotPacked  (wire.unpacking)
        CutShort
"""

from __future__ import annotations


class PenstockError(Exception):
    """Base of every error that Penstock raises deliberately."""
