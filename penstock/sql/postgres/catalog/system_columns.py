"""Names and types of the columns of PostgreSQL 16's system tables, as the server itself lists them.

They are facts of PostgreSQL's interface (PostgreSQL 16, chapters 37 and 53); a test compares them with a server.
"""

from __future__ import annotations

TABLES = {
    "pg_aggregate": (
        "aggfnoid:p aggkind:t aggnumdirectargs:s aggtransfn:p aggfinalfn:p aggcombinefn:p aggserialfn:p "
        "aggdeserialfn:p aggmtransfn:p aggminvtransfn:p aggmfinalfn:p aggfinalextra:b aggmfinalextra:b "
        "aggfinalmodify:t aggmfinalmodify:t aggsortop:o aggtranstype:o aggtransspace:i aggmtranstype:o "
        "aggmtransspace:i agginitval:T aggminitval:T tableoid:o xmin:o"
    ),
    "pg_am": "oid:o amname:t amhandler:p amtype:t tableoid:o xmin:o",
    "pg_amop": (
        "oid:o amopfamily:o amoplefttype:o amoprighttype:o amopstrategy:s amoppurpose:t amopopr:o amopmethod:o "
        "amopsortfamily:o tableoid:o xmin:o"
    ),
    "pg_amproc": "oid:o amprocfamily:o amproclefttype:o amprocrighttype:o amprocnum:s amproc:p tableoid:o xmin:o",
    "pg_attrdef": "oid:o adrelid:o adnum:s adbin:t tableoid:o xmin:o",
    "pg_attribute": (
        "attrelid:o attname:t atttypid:o attlen:s attnum:s attcacheoff:i atttypmod:i attndims:s attbyval:b attalign:t "
        "attstorage:t attcompression:t attnotnull:b atthasdef:b atthasmissing:b attidentity:t attgenerated:t "
        "attisdropped:b attislocal:b attinhcount:s attstattarget:s attcollation:o attacl:A attoptions:A "
        "attfdwoptions:A attmissingval:A tableoid:o xmin:o"
    ),
    "pg_auth_members": (
        "oid:o roleid:o member:o grantor:o admin_option:b inherit_option:b set_option:b tableoid:o xmin:o"
    ),
    "pg_authid": (
        "oid:o rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b "
        "rolbypassrls:b rolconnlimit:i rolpassword:T rolvaliduntil:Z tableoid:o xmin:o"
    ),
    "pg_available_extension_versions": (
        "name:T version:T installed:b superuser:b trusted:b relocatable:b schema:T requires:A comment:T"
    ),
    "pg_available_extensions": "name:T default_version:T installed_version:T comment:T",
    "pg_backend_memory_contexts": (
        "name:T ident:T parent:T level:i total_bytes:n total_nblocks:n free_bytes:n free_chunks:n used_bytes:n"
    ),
    "pg_cast": "oid:o castsource:o casttarget:o castfunc:o castcontext:t castmethod:t tableoid:o xmin:o",
    "pg_class": (
        "oid:o relname:t relnamespace:o reltype:o reloftype:o relowner:o relam:o relfilenode:o reltablespace:o "
        "relpages:i reltuples:r relallvisible:i reltoastrelid:o relhasindex:b relisshared:b relpersistence:t "
        "relkind:t relnatts:s relchecks:s relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b "
        "relforcerowsecurity:b relispopulated:b relreplident:t relispartition:b relrewrite:o relfrozenxid:o "
        "relminmxid:o relacl:A reloptions:A relpartbound:T tableoid:o xmin:o"
    ),
    "pg_collation": (
        "oid:o collname:t collnamespace:o collowner:o collprovider:t collisdeterministic:b collencoding:i "
        "collcollate:T collctype:T colliculocale:T collicurules:T collversion:T tableoid:o xmin:o"
    ),
    "pg_config": "name:T setting:T",
    "pg_constraint": (
        "oid:o conname:t connamespace:o contype:t condeferrable:b condeferred:b convalidated:b conrelid:o contypid:o "
        "conindid:o conparentid:o confrelid:o confupdtype:t confdeltype:t confmatchtype:t conislocal:b coninhcount:s "
        "connoinherit:b conkey:V confkey:V conpfeqop:U conppeqop:U conffeqop:U confdelsetcols:V conexclop:U conbin:T "
        "tableoid:o xmin:o"
    ),
    "pg_conversion": (
        "oid:o conname:t connamespace:o conowner:o conforencoding:i contoencoding:i conproc:p condefault:b tableoid:o "
        "xmin:o"
    ),
    "pg_cursors": "name:T statement:T is_holdable:b is_binary:b is_scrollable:b creation_time:Z",
    "pg_database": (
        "oid:o datname:t datdba:o encoding:i datlocprovider:t datistemplate:b datallowconn:b datconnlimit:i "
        "datfrozenxid:o datminmxid:o dattablespace:o datcollate:t datctype:t daticulocale:T daticurules:T "
        "datcollversion:T datacl:A tableoid:o xmin:o"
    ),
    "pg_db_role_setting": "setdatabase:o setrole:o setconfig:A tableoid:o xmin:o",
    "pg_default_acl": "oid:o defaclrole:o defaclnamespace:o defaclobjtype:t defaclacl:a tableoid:o xmin:o",
    "pg_depend": "classid:o objid:o objsubid:i refclassid:o refobjid:o refobjsubid:i deptype:t tableoid:o xmin:o",
    "pg_description": "objoid:o classoid:o objsubid:i description:t tableoid:o xmin:o",
    "pg_enum": "oid:o enumtypid:o enumsortorder:r enumlabel:t tableoid:o xmin:o",
    "pg_event_trigger": "oid:o evtname:t evtevent:t evtowner:o evtfoid:o evtenabled:t evttags:A tableoid:o xmin:o",
    "pg_extension": (
        "oid:o extname:t extowner:o extnamespace:o extrelocatable:b extversion:t extconfig:U extcondition:A "
        "tableoid:o xmin:o"
    ),
    "pg_file_settings": "sourcefile:T sourceline:i seqno:i name:T setting:T applied:b error:T",
    "pg_foreign_data_wrapper": (
        "oid:o fdwname:t fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:A fdwoptions:A tableoid:o xmin:o"
    ),
    "pg_foreign_server": (
        "oid:o srvname:t srvowner:o srvfdw:o srvtype:T srvversion:T srvacl:A srvoptions:A tableoid:o xmin:o"
    ),
    "pg_foreign_table": "ftrelid:o ftserver:o ftoptions:A tableoid:o xmin:o",
    "pg_group": "groname:T grosysid:o grolist:U",
    "pg_hba_file_rules": (
        "rule_number:i file_name:T line_number:i type:T database:A user_name:A address:T netmask:T auth_method:T "
        "options:A error:T"
    ),
    "pg_ident_file_mappings": "map_number:i file_name:T line_number:i map_name:T sys_name:T pg_username:T error:T",
    "pg_index": (
        "indexrelid:o indrelid:o indnatts:s indnkeyatts:s indisunique:b indnullsnotdistinct:b indisprimary:b "
        "indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b "
        "indisreplident:b indkey:v indcollation:u indclass:u indoption:v indexprs:T indpred:T tableoid:o xmin:o"
    ),
    "pg_indexes": "schemaname:T tablename:T indexname:T tablespace:T indexdef:T",
    "pg_inherits": "inhrelid:o inhparent:o inhseqno:i inhdetachpending:b tableoid:o xmin:o",
    "pg_init_privs": "objoid:o classoid:o objsubid:i privtype:t initprivs:a tableoid:o xmin:o",
    "pg_language": (
        "oid:o lanname:t lanowner:o lanispl:b lanpltrusted:b lanplcallfoid:o laninline:o lanvalidator:o lanacl:A "
        "tableoid:o xmin:o"
    ),
    "pg_largeobject": "loid:o pageno:i data:y tableoid:o xmin:o",
    "pg_largeobject_metadata": "oid:o lomowner:o lomacl:A tableoid:o xmin:o",
    "pg_locks": (
        "locktype:T database:o relation:o page:i tuple:s virtualxid:T transactionid:o classid:o objid:o objsubid:s "
        "virtualtransaction:T pid:i mode:T granted:b fastpath:b waitstart:Z"
    ),
    "pg_matviews": "schemaname:T matviewname:T matviewowner:T tablespace:T hasindexes:b ispopulated:b definition:T",
    "pg_namespace": "oid:o nspname:t nspowner:o nspacl:A tableoid:o xmin:o",
    "pg_opclass": (
        "oid:o opcmethod:o opcname:t opcnamespace:o opcowner:o opcfamily:o opcintype:o opcdefault:b opckeytype:o "
        "tableoid:o xmin:o"
    ),
    "pg_operator": (
        "oid:o oprname:t oprnamespace:o oprowner:o oprkind:t oprcanmerge:b oprcanhash:b oprleft:o oprright:o "
        "oprresult:o oprcom:o oprnegate:o oprcode:p oprrest:p oprjoin:p tableoid:o xmin:o"
    ),
    "pg_opfamily": "oid:o opfmethod:o opfname:t opfnamespace:o opfowner:o tableoid:o xmin:o",
    "pg_parameter_acl": "oid:o parname:t paracl:A tableoid:o xmin:o",
    "pg_partitioned_table": (
        "partrelid:o partstrat:t partnatts:s partdefid:o partattrs:v partclass:u partcollation:u partexprs:T "
        "tableoid:o xmin:o"
    ),
    "pg_policies": "schemaname:T tablename:T policyname:T permissive:T roles:A cmd:T qual:T with_check:T",
    "pg_policy": (
        "oid:o polname:t polrelid:o polcmd:t polpermissive:b polroles:u polqual:T polwithcheck:T tableoid:o xmin:o"
    ),
    "pg_prepared_statements": (
        "name:T statement:T prepare_time:Z parameter_types:U result_types:U from_sql:b generic_plans:n custom_plans:n"
    ),
    "pg_prepared_xacts": "transaction:o gid:T prepared:Z owner:T database:T",
    "pg_proc": (
        "oid:o proname:t pronamespace:o proowner:o prolang:o procost:r prorows:r provariadic:o prosupport:p prokind:t "
        "prosecdef:b proleakproof:b proisstrict:b proretset:b provolatile:t proparallel:t pronargs:s "
        "pronargdefaults:s prorettype:o proargtypes:u proallargtypes:U proargmodes:A proargnames:A proargdefaults:T "
        "protrftypes:U prosrc:t probin:T prosqlbody:T proconfig:A proacl:A tableoid:o xmin:o"
    ),
    "pg_publication": (
        "oid:o pubname:t pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b pubviaroot:b "
        "tableoid:o xmin:o"
    ),
    "pg_publication_namespace": "oid:o pnpubid:o pnnspid:o tableoid:o xmin:o",
    "pg_publication_rel": "oid:o prpubid:o prrelid:o prqual:T prattrs:V tableoid:o xmin:o",
    "pg_publication_tables": "pubname:T schemaname:T tablename:T attnames:A rowfilter:T",
    "pg_range": (
        "rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o rngcanonical:p rngsubdiff:p tableoid:o "
        "xmin:o"
    ),
    "pg_replication_origin": "roident:o roname:t tableoid:o xmin:o",
    "pg_replication_origin_status": "local_id:o external_id:T remote_lsn:T local_lsn:T",
    "pg_replication_slots": (
        "slot_name:T plugin:T slot_type:T datoid:o database:T temporary:b active:b active_pid:i xmin:o catalog_xmin:o "
        "restart_lsn:T confirmed_flush_lsn:T wal_status:T safe_wal_size:n two_phase:b conflicting:b"
    ),
    "pg_rewrite": (
        "oid:o rulename:t ev_class:o ev_type:t ev_enabled:t is_instead:b ev_qual:t ev_action:t tableoid:o xmin:o"
    ),
    "pg_roles": (
        "rolname:T rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b "
        "rolconnlimit:i rolpassword:T rolvaliduntil:Z rolbypassrls:b rolconfig:A oid:o"
    ),
    "pg_rules": "schemaname:T tablename:T rulename:T definition:T",
    "pg_seclabel": "objoid:o classoid:o objsubid:i provider:t label:t tableoid:o xmin:o",
    "pg_seclabels": "objoid:o classoid:o objsubid:i objtype:T objnamespace:o objname:T provider:T label:T",
    "pg_sequence": (
        "seqrelid:o seqtypid:o seqstart:n seqincrement:n seqmax:n seqmin:n seqcache:n seqcycle:b tableoid:o xmin:o"
    ),
    "pg_sequences": (
        "schemaname:T sequencename:T sequenceowner:T data_type:o start_value:n min_value:n max_value:n increment_by:n "
        "cycle:b cache_size:n last_value:n"
    ),
    "pg_settings": (
        "name:T setting:T unit:T category:T short_desc:T extra_desc:T context:T vartype:T source:T min_val:T "
        "max_val:T enumvals:A boot_val:T reset_val:T sourcefile:T sourceline:i pending_restart:b"
    ),
    "pg_shadow": (
        "usename:T usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:T valuntil:Z useconfig:A"
    ),
    "pg_shdepend": "dbid:o classid:o objid:o objsubid:i refclassid:o refobjid:o deptype:t tableoid:o xmin:o",
    "pg_shdescription": "objoid:o classoid:o description:t tableoid:o xmin:o",
    "pg_shmem_allocations": "name:T off:n size:n allocated_size:n",
    "pg_shseclabel": "objoid:o classoid:o provider:t label:t tableoid:o xmin:o",
    "pg_stat_activity": (
        "datid:o datname:T pid:i leader_pid:i usesysid:o usename:T application_name:T client_addr:T client_hostname:T "
        "client_port:i backend_start:Z xact_start:Z query_start:Z state_change:Z wait_event_type:T wait_event:T "
        "state:T backend_xid:o backend_xmin:o query_id:n query:T backend_type:T"
    ),
    "pg_stat_all_indexes": (
        "relid:o indexrelid:o schemaname:T relname:T indexrelname:T idx_scan:n last_idx_scan:Z idx_tup_read:n "
        "idx_tup_fetch:n"
    ),
    "pg_stat_all_tables": (
        "relid:o schemaname:T relname:T seq_scan:n last_seq_scan:Z seq_tup_read:n idx_scan:n last_idx_scan:Z "
        "idx_tup_fetch:n n_tup_ins:n n_tup_upd:n n_tup_del:n n_tup_hot_upd:n n_tup_newpage_upd:n n_live_tup:n "
        "n_dead_tup:n n_mod_since_analyze:n n_ins_since_vacuum:n last_vacuum:Z last_autovacuum:Z last_analyze:Z "
        "last_autoanalyze:Z vacuum_count:n autovacuum_count:n analyze_count:n autoanalyze_count:n"
    ),
    "pg_stat_archiver": (
        "archived_count:n last_archived_wal:T last_archived_time:Z failed_count:n last_failed_wal:T "
        "last_failed_time:Z stats_reset:Z"
    ),
    "pg_stat_bgwriter": (
        "checkpoints_timed:n checkpoints_req:n checkpoint_write_time:F checkpoint_sync_time:F buffers_checkpoint:n "
        "buffers_clean:n maxwritten_clean:n buffers_backend:n buffers_backend_fsync:n buffers_alloc:n stats_reset:Z"
    ),
    "pg_stat_database": (
        "datid:o datname:T numbackends:i xact_commit:n xact_rollback:n blks_read:n blks_hit:n tup_returned:n "
        "tup_fetched:n tup_inserted:n tup_updated:n tup_deleted:n conflicts:n temp_files:n temp_bytes:n deadlocks:n "
        "checksum_failures:n checksum_last_failure:Z blk_read_time:F blk_write_time:F session_time:F active_time:F "
        "idle_in_transaction_time:F sessions:n sessions_abandoned:n sessions_fatal:n sessions_killed:n stats_reset:Z"
    ),
    "pg_stat_database_conflicts": (
        "datid:o datname:T confl_tablespace:n confl_lock:n confl_snapshot:n confl_bufferpin:n confl_deadlock:n "
        "confl_active_logicalslot:n"
    ),
    "pg_stat_gssapi": "pid:i gss_authenticated:b principal:T encrypted:b credentials_delegated:b",
    "pg_stat_io": (
        "backend_type:T object:T context:T reads:n read_time:F writes:n write_time:F writebacks:n writeback_time:F "
        "extends:n extend_time:F op_bytes:n hits:n evictions:n reuses:n fsyncs:n fsync_time:F stats_reset:Z"
    ),
    "pg_stat_progress_analyze": (
        "pid:i datid:o datname:T relid:o phase:T sample_blks_total:n sample_blks_scanned:n ext_stats_total:n "
        "ext_stats_computed:n child_tables_total:n child_tables_done:n current_child_table_relid:o"
    ),
    "pg_stat_progress_basebackup": (
        "pid:i phase:T backup_total:n backup_streamed:n tablespaces_total:n tablespaces_streamed:n"
    ),
    "pg_stat_progress_cluster": (
        "pid:i datid:o datname:T relid:o command:T phase:T cluster_index_relid:o heap_tuples_scanned:n "
        "heap_tuples_written:n heap_blks_total:n heap_blks_scanned:n index_rebuild_count:n"
    ),
    "pg_stat_progress_copy": (
        "pid:i datid:o datname:T relid:o command:T type:T bytes_processed:n bytes_total:n tuples_processed:n "
        "tuples_excluded:n"
    ),
    "pg_stat_progress_create_index": (
        "pid:i datid:o datname:T relid:o index_relid:o command:T phase:T lockers_total:n lockers_done:n "
        "current_locker_pid:n blocks_total:n blocks_done:n tuples_total:n tuples_done:n partitions_total:n "
        "partitions_done:n"
    ),
    "pg_stat_progress_vacuum": (
        "pid:i datid:o datname:T relid:o phase:T heap_blks_total:n heap_blks_scanned:n heap_blks_vacuumed:n "
        "index_vacuum_count:n max_dead_tuples:n num_dead_tuples:n"
    ),
    "pg_stat_recovery_prefetch": (
        "stats_reset:Z prefetch:n hit:n skip_init:n skip_new:n skip_fpw:n skip_rep:n wal_distance:i block_distance:i "
        "io_depth:i"
    ),
    "pg_stat_replication": (
        "pid:i usesysid:o usename:T application_name:T client_addr:T client_hostname:T client_port:i backend_start:Z "
        "backend_xmin:o state:T sent_lsn:T write_lsn:T flush_lsn:T replay_lsn:T write_lag:L flush_lag:L replay_lag:L "
        "sync_priority:i sync_state:T reply_time:Z"
    ),
    "pg_stat_replication_slots": (
        "slot_name:T spill_txns:n spill_count:n spill_bytes:n stream_txns:n stream_count:n stream_bytes:n "
        "total_txns:n total_bytes:n stats_reset:Z"
    ),
    "pg_stat_slru": (
        "name:T blks_zeroed:n blks_hit:n blks_read:n blks_written:n blks_exists:n flushes:n truncates:n stats_reset:Z"
    ),
    "pg_stat_ssl": "pid:i ssl:b version:T cipher:T bits:i client_dn:T client_serial:F issuer_dn:T",
    "pg_stat_subscription": (
        "subid:o subname:T pid:i leader_pid:i relid:o received_lsn:T last_msg_send_time:Z last_msg_receipt_time:Z "
        "latest_end_lsn:T latest_end_time:Z"
    ),
    "pg_stat_subscription_stats": "subid:o subname:T apply_error_count:n sync_error_count:n stats_reset:Z",
    "pg_stat_sys_indexes": (
        "relid:o indexrelid:o schemaname:T relname:T indexrelname:T idx_scan:n last_idx_scan:Z idx_tup_read:n "
        "idx_tup_fetch:n"
    ),
    "pg_stat_sys_tables": (
        "relid:o schemaname:T relname:T seq_scan:n last_seq_scan:Z seq_tup_read:n idx_scan:n last_idx_scan:Z "
        "idx_tup_fetch:n n_tup_ins:n n_tup_upd:n n_tup_del:n n_tup_hot_upd:n n_tup_newpage_upd:n n_live_tup:n "
        "n_dead_tup:n n_mod_since_analyze:n n_ins_since_vacuum:n last_vacuum:Z last_autovacuum:Z last_analyze:Z "
        "last_autoanalyze:Z vacuum_count:n autovacuum_count:n analyze_count:n autoanalyze_count:n"
    ),
    "pg_stat_user_functions": "funcid:o schemaname:T funcname:T calls:n total_time:F self_time:F",
    "pg_stat_user_indexes": (
        "relid:o indexrelid:o schemaname:T relname:T indexrelname:T idx_scan:n last_idx_scan:Z idx_tup_read:n "
        "idx_tup_fetch:n"
    ),
    "pg_stat_user_tables": (
        "relid:o schemaname:T relname:T seq_scan:n last_seq_scan:Z seq_tup_read:n idx_scan:n last_idx_scan:Z "
        "idx_tup_fetch:n n_tup_ins:n n_tup_upd:n n_tup_del:n n_tup_hot_upd:n n_tup_newpage_upd:n n_live_tup:n "
        "n_dead_tup:n n_mod_since_analyze:n n_ins_since_vacuum:n last_vacuum:Z last_autovacuum:Z last_analyze:Z "
        "last_autoanalyze:Z vacuum_count:n autovacuum_count:n analyze_count:n autoanalyze_count:n"
    ),
    "pg_stat_wal": (
        "wal_records:n wal_fpi:n wal_bytes:F wal_buffers_full:n wal_write:n wal_sync:n wal_write_time:F "
        "wal_sync_time:F stats_reset:Z"
    ),
    "pg_stat_wal_receiver": (
        "pid:i status:T receive_start_lsn:T receive_start_tli:i written_lsn:T flushed_lsn:T received_tli:i "
        "last_msg_send_time:Z last_msg_receipt_time:Z latest_end_lsn:T latest_end_time:Z slot_name:T sender_host:T "
        "sender_port:i conninfo:T"
    ),
    "pg_stat_xact_all_tables": (
        "relid:o schemaname:T relname:T seq_scan:n seq_tup_read:n idx_scan:n idx_tup_fetch:n n_tup_ins:n n_tup_upd:n "
        "n_tup_del:n n_tup_hot_upd:n n_tup_newpage_upd:n"
    ),
    "pg_stat_xact_sys_tables": (
        "relid:o schemaname:T relname:T seq_scan:n seq_tup_read:n idx_scan:n idx_tup_fetch:n n_tup_ins:n n_tup_upd:n "
        "n_tup_del:n n_tup_hot_upd:n n_tup_newpage_upd:n"
    ),
    "pg_stat_xact_user_functions": "funcid:o schemaname:T funcname:T calls:n total_time:F self_time:F",
    "pg_stat_xact_user_tables": (
        "relid:o schemaname:T relname:T seq_scan:n seq_tup_read:n idx_scan:n idx_tup_fetch:n n_tup_ins:n n_tup_upd:n "
        "n_tup_del:n n_tup_hot_upd:n n_tup_newpage_upd:n"
    ),
    "pg_statio_all_indexes": (
        "relid:o indexrelid:o schemaname:T relname:T indexrelname:T idx_blks_read:n idx_blks_hit:n"
    ),
    "pg_statio_all_sequences": "relid:o schemaname:T relname:T blks_read:n blks_hit:n",
    "pg_statio_all_tables": (
        "relid:o schemaname:T relname:T heap_blks_read:n heap_blks_hit:n idx_blks_read:n idx_blks_hit:n "
        "toast_blks_read:n toast_blks_hit:n tidx_blks_read:n tidx_blks_hit:n"
    ),
    "pg_statio_sys_indexes": (
        "relid:o indexrelid:o schemaname:T relname:T indexrelname:T idx_blks_read:n idx_blks_hit:n"
    ),
    "pg_statio_sys_sequences": "relid:o schemaname:T relname:T blks_read:n blks_hit:n",
    "pg_statio_sys_tables": (
        "relid:o schemaname:T relname:T heap_blks_read:n heap_blks_hit:n idx_blks_read:n idx_blks_hit:n "
        "toast_blks_read:n toast_blks_hit:n tidx_blks_read:n tidx_blks_hit:n"
    ),
    "pg_statio_user_indexes": (
        "relid:o indexrelid:o schemaname:T relname:T indexrelname:T idx_blks_read:n idx_blks_hit:n"
    ),
    "pg_statio_user_sequences": "relid:o schemaname:T relname:T blks_read:n blks_hit:n",
    "pg_statio_user_tables": (
        "relid:o schemaname:T relname:T heap_blks_read:n heap_blks_hit:n idx_blks_read:n idx_blks_hit:n "
        "toast_blks_read:n toast_blks_hit:n tidx_blks_read:n tidx_blks_hit:n"
    ),
    "pg_statistic": (
        "starelid:o staattnum:s stainherit:b stanullfrac:r stawidth:i stadistinct:r stakind1:s stakind2:s stakind3:s "
        "stakind4:s stakind5:s staop1:o staop2:o staop3:o staop4:o staop5:o stacoll1:o stacoll2:o stacoll3:o "
        "stacoll4:o stacoll5:o stanumbers1:E stanumbers2:E stanumbers3:E stanumbers4:E stanumbers5:E stavalues1:A "
        "stavalues2:A stavalues3:A stavalues4:A stavalues5:A tableoid:o xmin:o"
    ),
    "pg_statistic_ext": (
        "oid:o stxrelid:o stxname:t stxnamespace:o stxowner:o stxstattarget:i stxkeys:v stxkind:a stxexprs:T "
        "tableoid:o xmin:o"
    ),
    "pg_statistic_ext_data": (
        "stxoid:o stxdinherit:b stxdndistinct:T stxddependencies:T stxdmcv:T stxdexpr:A tableoid:o xmin:o"
    ),
    "pg_stats": (
        "schemaname:T tablename:T attname:T inherited:b null_frac:R avg_width:i n_distinct:R most_common_vals:A "
        "most_common_freqs:E histogram_bounds:A correlation:R most_common_elems:A most_common_elem_freqs:E "
        "elem_count_histogram:E"
    ),
    "pg_stats_ext": (
        "schemaname:T tablename:T statistics_schemaname:T statistics_name:T statistics_owner:T attnames:A exprs:A "
        "kinds:A inherited:b n_distinct:T dependencies:T most_common_vals:A most_common_val_nulls:C "
        "most_common_freqs:E most_common_base_freqs:E"
    ),
    "pg_stats_ext_exprs": (
        "schemaname:T tablename:T statistics_schemaname:T statistics_name:T statistics_owner:T expr:T inherited:b "
        "null_frac:R avg_width:i n_distinct:R most_common_vals:A most_common_freqs:E histogram_bounds:A correlation:R "
        "most_common_elems:A most_common_elem_freqs:E elem_count_histogram:E"
    ),
    "pg_subscription": (
        "oid:o subdbid:o subskiplsn:t subname:t subowner:o subenabled:b subbinary:b substream:t subtwophasestate:t "
        "subdisableonerr:b subpasswordrequired:b subrunasowner:b subconninfo:t subslotname:T subsynccommit:t "
        "subpublications:a suborigin:T tableoid:o xmin:o"
    ),
    "pg_subscription_rel": "srsubid:o srrelid:o srsubstate:t srsublsn:T tableoid:o xmin:o",
    "pg_tables": (
        "schemaname:T tablename:T tableowner:T tablespace:T hasindexes:b hasrules:b hastriggers:b rowsecurity:b"
    ),
    "pg_tablespace": "oid:o spcname:t spcowner:o spcacl:A spcoptions:A tableoid:o xmin:o",
    "pg_timezone_abbrevs": "abbrev:T utc_offset:L is_dst:b",
    "pg_timezone_names": "name:T abbrev:T utc_offset:L is_dst:b",
    "pg_transform": "oid:o trftype:o trflang:o trffromsql:p trftosql:p tableoid:o xmin:o",
    "pg_trigger": (
        "oid:o tgrelid:o tgparentid:o tgname:t tgfoid:o tgtype:s tgenabled:t tgisinternal:b tgconstrrelid:o "
        "tgconstrindid:o tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:s tgattr:v tgargs:y tgqual:T "
        "tgoldtable:T tgnewtable:T tableoid:o xmin:o"
    ),
    "pg_ts_config": "oid:o cfgname:t cfgnamespace:o cfgowner:o cfgparser:o tableoid:o xmin:o",
    "pg_ts_config_map": "mapcfg:o maptokentype:i mapseqno:i mapdict:o tableoid:o xmin:o",
    "pg_ts_dict": "oid:o dictname:t dictnamespace:o dictowner:o dicttemplate:o dictinitoption:T tableoid:o xmin:o",
    "pg_ts_parser": (
        "oid:o prsname:t prsnamespace:o prsstart:p prstoken:p prsend:p prsheadline:p prslextype:p tableoid:o xmin:o"
    ),
    "pg_ts_template": "oid:o tmplname:t tmplnamespace:o tmplinit:p tmpllexize:p tableoid:o xmin:o",
    "pg_type": (
        "oid:o typname:t typnamespace:o typowner:o typlen:s typbyval:b typtype:t typcategory:t typispreferred:b "
        "typisdefined:b typdelim:t typrelid:o typsubscript:p typelem:o typarray:o typinput:p typoutput:p typreceive:p "
        "typsend:p typmodin:p typmodout:p typanalyze:p typalign:t typstorage:t typnotnull:b typbasetype:o typtypmod:i "
        "typndims:i typcollation:o typdefaultbin:T typdefault:T typacl:A tableoid:o xmin:o"
    ),
    "pg_user": "usename:T usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:T valuntil:Z useconfig:A",
    "pg_user_mapping": "oid:o umuser:o umserver:o umoptions:A tableoid:o xmin:o",
    "pg_user_mappings": "umid:o srvid:o srvname:T umuser:o usename:T umoptions:A",
    "pg_views": "schemaname:T viewname:T viewowner:T definition:T",
}
"""Tables and views of ``pg_catalog``: their columns, with the letters of ``system_tables.COLUMN_TYPES``.

``tableoid`` and ``xmin`` are system columns, which psql and DataGrip read.
"""
INFORMATION_SCHEMA_TABLES = {
    "administrable_role_authorizations": "grantee:T role_name:T is_grantable:q",
    "applicable_roles": "grantee:T role_name:T is_grantable:q",
    "attributes": (
        "udt_catalog:T udt_schema:T udt_name:T attribute_name:T ordinal_position:I attribute_default:T is_nullable:q "
        "data_type:T character_maximum_length:I character_octet_length:I character_set_catalog:T "
        "character_set_schema:T character_set_name:T collation_catalog:T collation_schema:T collation_name:T "
        "numeric_precision:I numeric_precision_radix:I numeric_scale:I datetime_precision:I interval_type:T "
        "interval_precision:I attribute_udt_catalog:T attribute_udt_schema:T attribute_udt_name:T scope_catalog:T "
        "scope_schema:T scope_name:T maximum_cardinality:I dtd_identifier:T is_derived_reference_attribute:q"
    ),
    "character_sets": (
        "character_set_catalog:T character_set_schema:T character_set_name:T character_repertoire:T form_of_use:T "
        "default_collate_catalog:T default_collate_schema:T default_collate_name:T"
    ),
    "check_constraint_routine_usage": (
        "constraint_catalog:T constraint_schema:T constraint_name:T specific_catalog:T specific_schema:T "
        "specific_name:T"
    ),
    "check_constraints": "constraint_catalog:T constraint_schema:T constraint_name:T check_clause:T",
    "collation_character_set_applicability": (
        "collation_catalog:T collation_schema:T collation_name:T character_set_catalog:T character_set_schema:T "
        "character_set_name:T"
    ),
    "collations": "collation_catalog:T collation_schema:T collation_name:T pad_attribute:T",
    "column_column_usage": "table_catalog:T table_schema:T table_name:T column_name:T dependent_column:T",
    "column_domain_usage": (
        "domain_catalog:T domain_schema:T domain_name:T table_catalog:T table_schema:T table_name:T column_name:T"
    ),
    "column_options": "table_catalog:T table_schema:T table_name:T column_name:T option_name:T option_value:T",
    "column_privileges": (
        "grantor:T grantee:T table_catalog:T table_schema:T table_name:T column_name:T privilege_type:T is_grantable:q"
    ),
    "column_udt_usage": (
        "udt_catalog:T udt_schema:T udt_name:T table_catalog:T table_schema:T table_name:T column_name:T"
    ),
    "columns": (
        "table_catalog:T table_schema:T table_name:T column_name:T ordinal_position:I column_default:T is_nullable:q "
        "data_type:T character_maximum_length:I character_octet_length:I numeric_precision:I "
        "numeric_precision_radix:I numeric_scale:I datetime_precision:I interval_type:T interval_precision:I "
        "character_set_catalog:T character_set_schema:T character_set_name:T collation_catalog:T collation_schema:T "
        "collation_name:T domain_catalog:T domain_schema:T domain_name:T udt_catalog:T udt_schema:T udt_name:T "
        "scope_catalog:T scope_schema:T scope_name:T maximum_cardinality:I dtd_identifier:T is_self_referencing:q "
        "is_identity:q identity_generation:T identity_start:T identity_increment:T identity_maximum:T "
        "identity_minimum:T identity_cycle:q is_generated:T generation_expression:T is_updatable:q"
    ),
    "constraint_column_usage": (
        "table_catalog:T table_schema:T table_name:T column_name:T constraint_catalog:T constraint_schema:T "
        "constraint_name:T"
    ),
    "constraint_table_usage": (
        "table_catalog:T table_schema:T table_name:T constraint_catalog:T constraint_schema:T constraint_name:T"
    ),
    "data_type_privileges": "object_catalog:T object_schema:T object_name:T object_type:T dtd_identifier:T",
    "domain_constraints": (
        "constraint_catalog:T constraint_schema:T constraint_name:T domain_catalog:T domain_schema:T domain_name:T "
        "is_deferrable:q initially_deferred:q"
    ),
    "domain_udt_usage": "udt_catalog:T udt_schema:T udt_name:T domain_catalog:T domain_schema:T domain_name:T",
    "domains": (
        "domain_catalog:T domain_schema:T domain_name:T data_type:T character_maximum_length:I "
        "character_octet_length:I character_set_catalog:T character_set_schema:T character_set_name:T "
        "collation_catalog:T collation_schema:T collation_name:T numeric_precision:I numeric_precision_radix:I "
        "numeric_scale:I datetime_precision:I interval_type:T interval_precision:I domain_default:T udt_catalog:T "
        "udt_schema:T udt_name:T scope_catalog:T scope_schema:T scope_name:T maximum_cardinality:I dtd_identifier:T"
    ),
    "element_types": (
        "object_catalog:T object_schema:T object_name:T object_type:T collection_type_identifier:T data_type:T "
        "character_maximum_length:I character_octet_length:I character_set_catalog:T character_set_schema:T "
        "character_set_name:T collation_catalog:T collation_schema:T collation_name:T numeric_precision:I "
        "numeric_precision_radix:I numeric_scale:I datetime_precision:I interval_type:T interval_precision:I "
        "domain_default:T udt_catalog:T udt_schema:T udt_name:T scope_catalog:T scope_schema:T scope_name:T "
        "maximum_cardinality:I dtd_identifier:T"
    ),
    "enabled_roles": "role_name:T",
    "foreign_data_wrapper_options": (
        "foreign_data_wrapper_catalog:T foreign_data_wrapper_name:T option_name:T option_value:T"
    ),
    "foreign_data_wrappers": (
        "foreign_data_wrapper_catalog:T foreign_data_wrapper_name:T authorization_identifier:T library_name:T "
        "foreign_data_wrapper_language:T"
    ),
    "foreign_server_options": "foreign_server_catalog:T foreign_server_name:T option_name:T option_value:T",
    "foreign_servers": (
        "foreign_server_catalog:T foreign_server_name:T foreign_data_wrapper_catalog:T foreign_data_wrapper_name:T "
        "foreign_server_type:T foreign_server_version:T authorization_identifier:T"
    ),
    "foreign_table_options": (
        "foreign_table_catalog:T foreign_table_schema:T foreign_table_name:T option_name:T option_value:T"
    ),
    "foreign_tables": (
        "foreign_table_catalog:T foreign_table_schema:T foreign_table_name:T foreign_server_catalog:T "
        "foreign_server_name:T"
    ),
    "information_schema_catalog_name": "catalog_name:T",
    "key_column_usage": (
        "constraint_catalog:T constraint_schema:T constraint_name:T table_catalog:T table_schema:T table_name:T "
        "column_name:T ordinal_position:I position_in_unique_constraint:I"
    ),
    "parameters": (
        "specific_catalog:T specific_schema:T specific_name:T ordinal_position:I parameter_mode:T is_result:q "
        "as_locator:q parameter_name:T data_type:T character_maximum_length:I character_octet_length:I "
        "character_set_catalog:T character_set_schema:T character_set_name:T collation_catalog:T collation_schema:T "
        "collation_name:T numeric_precision:I numeric_precision_radix:I numeric_scale:I datetime_precision:I "
        "interval_type:T interval_precision:I udt_catalog:T udt_schema:T udt_name:T scope_catalog:T scope_schema:T "
        "scope_name:T maximum_cardinality:I dtd_identifier:T parameter_default:T"
    ),
    "referential_constraints": (
        "constraint_catalog:T constraint_schema:T constraint_name:T unique_constraint_catalog:T "
        "unique_constraint_schema:T unique_constraint_name:T match_option:T update_rule:T delete_rule:T"
    ),
    "role_column_grants": (
        "grantor:T grantee:T table_catalog:T table_schema:T table_name:T column_name:T privilege_type:T is_grantable:q"
    ),
    "role_routine_grants": (
        "grantor:T grantee:T specific_catalog:T specific_schema:T specific_name:T routine_catalog:T routine_schema:T "
        "routine_name:T privilege_type:T is_grantable:q"
    ),
    "role_table_grants": (
        "grantor:T grantee:T table_catalog:T table_schema:T table_name:T privilege_type:T is_grantable:q "
        "with_hierarchy:q"
    ),
    "role_udt_grants": "grantor:T grantee:T udt_catalog:T udt_schema:T udt_name:T privilege_type:T is_grantable:q",
    "role_usage_grants": (
        "grantor:T grantee:T object_catalog:T object_schema:T object_name:T object_type:T privilege_type:T "
        "is_grantable:q"
    ),
    "routine_column_usage": (
        "specific_catalog:T specific_schema:T specific_name:T routine_catalog:T routine_schema:T routine_name:T "
        "table_catalog:T table_schema:T table_name:T column_name:T"
    ),
    "routine_privileges": (
        "grantor:T grantee:T specific_catalog:T specific_schema:T specific_name:T routine_catalog:T routine_schema:T "
        "routine_name:T privilege_type:T is_grantable:q"
    ),
    "routine_routine_usage": (
        "specific_catalog:T specific_schema:T specific_name:T routine_catalog:T routine_schema:T routine_name:T"
    ),
    "routine_sequence_usage": (
        "specific_catalog:T specific_schema:T specific_name:T routine_catalog:T routine_schema:T routine_name:T "
        "sequence_catalog:T sequence_schema:T sequence_name:T"
    ),
    "routine_table_usage": (
        "specific_catalog:T specific_schema:T specific_name:T routine_catalog:T routine_schema:T routine_name:T "
        "table_catalog:T table_schema:T table_name:T"
    ),
    "routines": (
        "specific_catalog:T specific_schema:T specific_name:T routine_catalog:T routine_schema:T routine_name:T "
        "routine_type:T module_catalog:T module_schema:T module_name:T udt_catalog:T udt_schema:T udt_name:T "
        "data_type:T character_maximum_length:I character_octet_length:I character_set_catalog:T "
        "character_set_schema:T character_set_name:T collation_catalog:T collation_schema:T collation_name:T "
        "numeric_precision:I numeric_precision_radix:I numeric_scale:I datetime_precision:I interval_type:T "
        "interval_precision:I type_udt_catalog:T type_udt_schema:T type_udt_name:T scope_catalog:T scope_schema:T "
        "scope_name:T maximum_cardinality:I dtd_identifier:T routine_body:T routine_definition:T external_name:T "
        "external_language:T parameter_style:T is_deterministic:q sql_data_access:T is_null_call:q sql_path:T "
        "schema_level_routine:q max_dynamic_result_sets:I is_user_defined_cast:q is_implicitly_invocable:q "
        "security_type:T to_sql_specific_catalog:T to_sql_specific_schema:T to_sql_specific_name:T as_locator:q "
        "created:Z last_altered:Z new_savepoint_level:q is_udt_dependent:q result_cast_from_data_type:T "
        "result_cast_as_locator:q result_cast_char_max_length:I result_cast_char_octet_length:I "
        "result_cast_char_set_catalog:T result_cast_char_set_schema:T result_cast_char_set_name:T "
        "result_cast_collation_catalog:T result_cast_collation_schema:T result_cast_collation_name:T "
        "result_cast_numeric_precision:I result_cast_numeric_precision_radix:I result_cast_numeric_scale:I "
        "result_cast_datetime_precision:I result_cast_interval_type:T result_cast_interval_precision:I "
        "result_cast_type_udt_catalog:T result_cast_type_udt_schema:T result_cast_type_udt_name:T "
        "result_cast_scope_catalog:T result_cast_scope_schema:T result_cast_scope_name:T "
        "result_cast_maximum_cardinality:I result_cast_dtd_identifier:T"
    ),
    "schemata": (
        "catalog_name:T schema_name:T schema_owner:T default_character_set_catalog:T default_character_set_schema:T "
        "default_character_set_name:T sql_path:T"
    ),
    "sequences": (
        "sequence_catalog:T sequence_schema:T sequence_name:T data_type:T numeric_precision:I "
        "numeric_precision_radix:I numeric_scale:I start_value:T minimum_value:T maximum_value:T increment:T "
        "cycle_option:q"
    ),
    "sql_features": (
        "feature_id:T feature_name:T sub_feature_id:T sub_feature_name:T is_supported:q is_verified_by:T comments:T"
    ),
    "sql_implementation_info": (
        "implementation_info_id:T implementation_info_name:T integer_value:I character_value:T comments:T"
    ),
    "sql_parts": "feature_id:T feature_name:T is_supported:q is_verified_by:T comments:T",
    "sql_sizing": "sizing_id:I sizing_name:T supported_value:I comments:T",
    "table_constraints": (
        "constraint_catalog:T constraint_schema:T constraint_name:T table_catalog:T table_schema:T table_name:T "
        "constraint_type:T is_deferrable:q initially_deferred:q enforced:q nulls_distinct:q"
    ),
    "table_privileges": (
        "grantor:T grantee:T table_catalog:T table_schema:T table_name:T privilege_type:T is_grantable:q "
        "with_hierarchy:q"
    ),
    "tables": (
        "table_catalog:T table_schema:T table_name:T table_type:T self_referencing_column_name:T "
        "reference_generation:T user_defined_type_catalog:T user_defined_type_schema:T user_defined_type_name:T "
        "is_insertable_into:q is_typed:q commit_action:T"
    ),
    "transforms": (
        "udt_catalog:T udt_schema:T udt_name:T specific_catalog:T specific_schema:T specific_name:T group_name:T "
        "transform_type:T"
    ),
    "triggered_update_columns": (
        "trigger_catalog:T trigger_schema:T trigger_name:T event_object_catalog:T event_object_schema:T "
        "event_object_table:T event_object_column:T"
    ),
    "triggers": (
        "trigger_catalog:T trigger_schema:T trigger_name:T event_manipulation:T event_object_catalog:T "
        "event_object_schema:T event_object_table:T action_order:I action_condition:T action_statement:T "
        "action_orientation:T action_timing:T action_reference_old_table:T action_reference_new_table:T "
        "action_reference_old_row:T action_reference_new_row:T created:Z"
    ),
    "udt_privileges": "grantor:T grantee:T udt_catalog:T udt_schema:T udt_name:T privilege_type:T is_grantable:q",
    "usage_privileges": (
        "grantor:T grantee:T object_catalog:T object_schema:T object_name:T object_type:T privilege_type:T "
        "is_grantable:q"
    ),
    "user_defined_types": (
        "user_defined_type_catalog:T user_defined_type_schema:T user_defined_type_name:T user_defined_type_category:T "
        "is_instantiable:q is_final:q ordering_form:T ordering_category:T ordering_routine_catalog:T "
        "ordering_routine_schema:T ordering_routine_name:T reference_type:T data_type:T character_maximum_length:I "
        "character_octet_length:I character_set_catalog:T character_set_schema:T character_set_name:T "
        "collation_catalog:T collation_schema:T collation_name:T numeric_precision:I numeric_precision_radix:I "
        "numeric_scale:I datetime_precision:I interval_type:T interval_precision:I source_dtd_identifier:T "
        "ref_dtd_identifier:T"
    ),
    "user_mapping_options": (
        "authorization_identifier:T foreign_server_catalog:T foreign_server_name:T option_name:T option_value:T"
    ),
    "user_mappings": "authorization_identifier:T foreign_server_catalog:T foreign_server_name:T",
    "view_column_usage": (
        "view_catalog:T view_schema:T view_name:T table_catalog:T table_schema:T table_name:T column_name:T"
    ),
    "view_routine_usage": (
        "table_catalog:T table_schema:T table_name:T specific_catalog:T specific_schema:T specific_name:T"
    ),
    "view_table_usage": "view_catalog:T view_schema:T view_name:T table_catalog:T table_schema:T table_name:T",
    "views": (
        "table_catalog:T table_schema:T table_name:T view_definition:T check_option:T is_updatable:q "
        "is_insertable_into:q is_trigger_updatable:q is_trigger_deletable:q is_trigger_insertable_into:q"
    ),
}
"""The same of ``information_schema``."""
