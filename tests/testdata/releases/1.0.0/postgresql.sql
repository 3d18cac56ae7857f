SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA of_a_release;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE of_a_release.blobs (
    id bigint NOT NULL,
    series_id bigint NOT NULL,
    time_nanos bigint NOT NULL,
    digest text NOT NULL COLLATE pg_catalog."C",
    end_nanos bigint NOT NULL,
    duration_nanos bigint NOT NULL,
    size bigint NOT NULL,
    samples bigint NOT NULL,
    inputs_size bigint NOT NULL,
    live boolean NOT NULL,
    mark bigint NOT NULL,
    second_mark bigint NOT NULL
);
CREATE SEQUENCE of_a_release.blobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE of_a_release.blobs_id_seq OWNED BY of_a_release.blobs.id;
CREATE TABLE of_a_release.catalog_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE of_a_release.changes (
    service text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    collector bigint NOT NULL,
    version bigint NOT NULL,
    day bigint NOT NULL,
    submitted bigint NOT NULL
);
CREATE TABLE of_a_release.ended_sessions (
    signature text NOT NULL COLLATE pg_catalog."C",
    ends bigint NOT NULL
);
CREATE TABLE of_a_release.labels (
    series_id bigint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE of_a_release.leases (
    name text NOT NULL COLLATE pg_catalog."C",
    token bigint NOT NULL,
    ends_ms bigint NOT NULL,
    deletes_ms bigint NOT NULL
);
CREATE TABLE of_a_release.made (
    at_nanos bigint NOT NULL
);
CREATE TABLE of_a_release.origins (
    blob_id bigint NOT NULL,
    series_id bigint NOT NULL
);
CREATE TABLE of_a_release.outbox (
    number bigint NOT NULL,
    event text NOT NULL COLLATE pg_catalog."C",
    created_nanos bigint NOT NULL,
    body text NOT NULL COLLATE pg_catalog."C",
    attempts integer NOT NULL,
    due_nanos bigint NOT NULL
);
CREATE SEQUENCE of_a_release.outbox_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE of_a_release.outbox_number_seq OWNED BY of_a_release.outbox.number;
CREATE TABLE of_a_release.profiles (
    series_id bigint NOT NULL,
    digest text NOT NULL COLLATE pg_catalog."C",
    time_nanos bigint NOT NULL,
    blob_id bigint NOT NULL
);
CREATE TABLE of_a_release.retention (
    at_nanos bigint NOT NULL
);
CREATE TABLE of_a_release.series (
    id bigint NOT NULL,
    service text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    labels text NOT NULL COLLATE pg_catalog."C",
    rolled_up boolean NOT NULL
);
CREATE SEQUENCE of_a_release.series_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE of_a_release.series_id_seq OWNED BY of_a_release.series.id;
ALTER TABLE ONLY of_a_release.blobs ALTER COLUMN id SET DEFAULT nextval('of_a_release.blobs_id_seq'::regclass);
ALTER TABLE ONLY of_a_release.outbox ALTER COLUMN number SET DEFAULT nextval('of_a_release.outbox_number_seq'::regclass);
ALTER TABLE ONLY of_a_release.series ALTER COLUMN id SET DEFAULT nextval('of_a_release.series_id_seq'::regclass);
INSERT INTO of_a_release.blobs VALUES (4, 1, 1700000097000000000, 'de109feeaf5b4530da11cb9dc0520577ae41d29f73385e5d81e58ac23b4d4764', 1700000099000000000, 3000000000, 520, 3, 405, true, 936202553281, 71993509090);
INSERT INTO of_a_release.blobs VALUES (6, 2, 1700086400000000000, '78012391d96f635d2af5ad2758737ac1cafb80d8c5f8978e941a33c1a8131826', 1700086400000000000, 1000000000, 162, 1, 0, true, 460491736297, 516774238515);
INSERT INTO of_a_release.blobs VALUES (7, 2, 1700086400000000000, 'e28e12d3b836ea639767a6f1c64b47845cd1e8b7b18dc1da3f274e93d29e369f', 1700086400000000000, 1000000000, 161, 1, 0, true, 115650093241, 487123211413);
INSERT INTO of_a_release.blobs VALUES (8, 3, 1795175904773537006, '893453b0dbdd1c74cdba460538aa09094daffca2dd3e65698a7cf37a5c23d8be', 1795175904773537006, 5031419119, 25243, 302, 0, true, 775974887252, 624084786448);
INSERT INTO of_a_release.blobs VALUES (9, 4, 1795175914903834199, 'b5d5845268520befe0cee85097ea440654bc6618d8e1b5a27ba6e441be2cf9e0', 1795175914903834199, 5044364843, 26623, 341, 0, true, 210317648004, 240955024053);
INSERT INTO of_a_release.catalog_version VALUES ('6.0');
INSERT INTO of_a_release.changes VALUES ('default', 'cpu', 2027106841399533426, 1796005274839345942, 20787, 5);
INSERT INTO of_a_release.changes VALUES ('lintd', 'cpu', 2027106841399533426, 1796005275025186125, 20787, 2);
INSERT INTO of_a_release.labels VALUES (1, 'version', '1');
INSERT INTO of_a_release.labels VALUES (3, 'instance', '0');
INSERT INTO of_a_release.labels VALUES (4, 'instance', '1');
INSERT INTO of_a_release.made VALUES (1796005274678204405);
INSERT INTO of_a_release.outbox VALUES (1, 'evt_2d7ab03396031211f02c21602c7c3e42', 1796005274834999420, '{"type": "profile.stored", "id": "evt_2d7ab03396031211f02c21602c7c3e42", "timestamp": "2026-11-30T02:21:14.834999420Z", "data": {"id": "default/cpu/version=1/2023-11-14/1700000097000000000-bd4d346a411495218a74bb530052a2970a19d740d7353a736c1b576e5151d5e3.pb.gz", "service": "default", "type": "cpu", "labels": {"version": "1"}, "time": "2023-11-14T22:14:57Z", "duration_seconds": 1.0, "bytes": 163, "samples": 1, "stored_at": "2026-11-30T02:21:14.834999420Z"}}', 0, 1796005274834999420);
INSERT INTO of_a_release.outbox VALUES (2, 'evt_2198004ffbb3de455870be33df55e070', 1796005274856319399, '{"type": "profile.stored", "id": "evt_2198004ffbb3de455870be33df55e070", "timestamp": "2026-11-30T02:21:14.856319399Z", "data": {"id": "default/cpu/version=1/2023-11-14/1700000098000000000-fa557ee39c710d54349751a278be7c5f2d80aad6a61e456ba9e5f6dc3c5f1b97.pb.gz", "service": "default", "type": "cpu", "labels": {"version": "1"}, "time": "2023-11-14T22:14:58Z", "duration_seconds": 1.0, "bytes": 163, "samples": 1, "stored_at": "2026-11-30T02:21:14.856319399Z"}}', 0, 1796005274856319399);
INSERT INTO of_a_release.outbox VALUES (3, 'evt_4038cda898e571819c82a470960051ac', 1796005274867804707, '{"type": "profile.stored", "id": "evt_4038cda898e571819c82a470960051ac", "timestamp": "2026-11-30T02:21:14.867804707Z", "data": {"id": "default/cpu/version=1/2023-11-14/1700000099000000000-93dae3cfd03467e019a0e51a5edf8656b673d68865b7230e0243f8fee1f00626.pb.gz", "service": "default", "type": "cpu", "labels": {"version": "1"}, "time": "2023-11-14T22:14:59Z", "duration_seconds": 1.0, "bytes": 163, "samples": 1, "stored_at": "2026-11-30T02:21:14.867804707Z"}}', 0, 1796005274867804707);
INSERT INTO of_a_release.outbox VALUES (4, 'evt_2579a36e695c6352534628c540aacd5f', 1796005275004327713, '{"type": "profile.stored", "id": "evt_2579a36e695c6352534628c540aacd5f", "timestamp": "2026-11-30T02:21:15.004327713Z", "data": {"id": "default/cpu/2023-11-15/1700086400000000000-78012391d96f635d2af5ad2758737ac1cafb80d8c5f8978e941a33c1a8131826.pb.gz", "service": "default", "type": "cpu", "labels": {}, "time": "2023-11-15T22:13:20Z", "duration_seconds": 1.0, "bytes": 162, "samples": 1, "stored_at": "2026-11-30T02:21:15.004327713Z"}}', 0, 1796005275004327713);
INSERT INTO of_a_release.outbox VALUES (5, 'evt_7ff93b59dbc5c28145273793df32e0ee', 1796005275013093322, '{"type": "profile.stored", "id": "evt_7ff93b59dbc5c28145273793df32e0ee", "timestamp": "2026-11-30T02:21:15.013093322Z", "data": {"id": "default/cpu/2023-11-15/1700086400000000000-e28e12d3b836ea639767a6f1c64b47845cd1e8b7b18dc1da3f274e93d29e369f.pb.gz", "service": "default", "type": "cpu", "labels": {}, "time": "2023-11-15T22:13:20Z", "duration_seconds": 1.0, "bytes": 161, "samples": 1, "stored_at": "2026-11-30T02:21:15.013093322Z"}}', 0, 1796005275013093322);
INSERT INTO of_a_release.outbox VALUES (6, 'evt_aadf7f2fec4bc87f46f8352b6f8abbe8', 1796005275024211405, '{"type": "profile.stored", "id": "evt_aadf7f2fec4bc87f46f8352b6f8abbe8", "timestamp": "2026-11-30T02:21:15.024211405Z", "data": {"id": "lintd/cpu/instance=0/2026-11-20/1795175904773537006-893453b0dbdd1c74cdba460538aa09094daffca2dd3e65698a7cf37a5c23d8be.pb.gz", "service": "lintd", "type": "cpu", "labels": {"instance": "0"}, "time": "2026-11-20T11:58:24.773537006Z", "duration_seconds": 5.031419119, "bytes": 25243, "samples": 302, "stored_at": "2026-11-30T02:21:15.024211405Z"}}', 0, 1796005275024211405);
INSERT INTO of_a_release.outbox VALUES (7, 'evt_e252a56aa06a61c591b93f489dcb456d', 1796005275033948653, '{"type": "profile.stored", "id": "evt_e252a56aa06a61c591b93f489dcb456d", "timestamp": "2026-11-30T02:21:15.033948653Z", "data": {"id": "lintd/cpu/instance=1/2026-11-20/1795175914903834199-b5d5845268520befe0cee85097ea440654bc6618d8e1b5a27ba6e441be2cf9e0.pb.gz", "service": "lintd", "type": "cpu", "labels": {"instance": "1"}, "time": "2026-11-20T11:58:34.903834199Z", "duration_seconds": 5.044364843, "bytes": 26623, "samples": 341, "stored_at": "2026-11-30T02:21:15.033948653Z"}}', 0, 1796005275033948653);
INSERT INTO of_a_release.profiles VALUES (1, 'de109feeaf5b4530da11cb9dc0520577ae41d29f73385e5d81e58ac23b4d4764', 1700000097000000000, 4);
INSERT INTO of_a_release.profiles VALUES (1, 'fa557ee39c710d54349751a278be7c5f2d80aad6a61e456ba9e5f6dc3c5f1b97', 1700000098000000000, 4);
INSERT INTO of_a_release.profiles VALUES (1, 'bd4d346a411495218a74bb530052a2970a19d740d7353a736c1b576e5151d5e3', 1700000097000000000, 4);
INSERT INTO of_a_release.profiles VALUES (1, '93dae3cfd03467e019a0e51a5edf8656b673d68865b7230e0243f8fee1f00626', 1700000099000000000, 4);
INSERT INTO of_a_release.profiles VALUES (2, '78012391d96f635d2af5ad2758737ac1cafb80d8c5f8978e941a33c1a8131826', 1700086400000000000, 6);
INSERT INTO of_a_release.profiles VALUES (2, 'e28e12d3b836ea639767a6f1c64b47845cd1e8b7b18dc1da3f274e93d29e369f', 1700086400000000000, 7);
INSERT INTO of_a_release.profiles VALUES (3, '893453b0dbdd1c74cdba460538aa09094daffca2dd3e65698a7cf37a5c23d8be', 1795175904773537006, 8);
INSERT INTO of_a_release.profiles VALUES (4, 'b5d5845268520befe0cee85097ea440654bc6618d8e1b5a27ba6e441be2cf9e0', 1795175914903834199, 9);
INSERT INTO of_a_release.retention VALUES (1796005274837314605);
INSERT INTO of_a_release.series VALUES (1, 'default', 'cpu', 'version=1', false);
INSERT INTO of_a_release.series VALUES (2, 'default', 'cpu', '', false);
INSERT INTO of_a_release.series VALUES (3, 'lintd', 'cpu', 'instance=0', false);
INSERT INTO of_a_release.series VALUES (4, 'lintd', 'cpu', 'instance=1', false);
SELECT pg_catalog.setval('of_a_release.blobs_id_seq', 9, true);
SELECT pg_catalog.setval('of_a_release.outbox_number_seq', 7, true);
SELECT pg_catalog.setval('of_a_release.series_id_seq', 4, true);
ALTER TABLE ONLY of_a_release.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY of_a_release.blobs
    ADD CONSTRAINT blobs_series_id_time_nanos_digest_key UNIQUE (series_id, time_nanos, digest);
ALTER TABLE ONLY of_a_release.catalog_version
    ADD CONSTRAINT catalog_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY of_a_release.changes
    ADD CONSTRAINT changes_pkey PRIMARY KEY (service, type, collector);
ALTER TABLE ONLY of_a_release.ended_sessions
    ADD CONSTRAINT ended_sessions_pkey PRIMARY KEY (signature);
ALTER TABLE ONLY of_a_release.labels
    ADD CONSTRAINT labels_pkey PRIMARY KEY (series_id, key);
ALTER TABLE ONLY of_a_release.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name);
ALTER TABLE ONLY of_a_release.made
    ADD CONSTRAINT made_pkey PRIMARY KEY (at_nanos);
ALTER TABLE ONLY of_a_release.origins
    ADD CONSTRAINT origins_pkey PRIMARY KEY (blob_id, series_id);
ALTER TABLE ONLY of_a_release.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (number);
ALTER TABLE ONLY of_a_release.profiles
    ADD CONSTRAINT profiles_pkey PRIMARY KEY (series_id, digest, time_nanos);
ALTER TABLE ONLY of_a_release.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (at_nanos);
ALTER TABLE ONLY of_a_release.series
    ADD CONSTRAINT series_pkey PRIMARY KEY (id);
ALTER TABLE ONLY of_a_release.series
    ADD CONSTRAINT series_service_type_labels_key UNIQUE (service, type, labels);
CREATE INDEX blobs_combined ON of_a_release.blobs USING btree (series_id, live, end_nanos, time_nanos) WHERE (inputs_size > 0);
CREATE INDEX blobs_live ON of_a_release.blobs USING btree (series_id, live, time_nanos, mark, second_mark);
CREATE INDEX blobs_retired ON of_a_release.blobs USING btree (live) WHERE (NOT live);
CREATE INDEX ix_outbox_due_nanos ON of_a_release.outbox USING btree (due_nanos);
CREATE INDEX ix_profiles_blob_id ON of_a_release.profiles USING btree (blob_id);
CREATE INDEX labels_value ON of_a_release.labels USING btree (key, value, series_id);
CREATE INDEX origins_series ON of_a_release.origins USING btree (series_id, blob_id);
ALTER TABLE ONLY of_a_release.blobs
    ADD CONSTRAINT blobs_series_id_fkey FOREIGN KEY (series_id) REFERENCES of_a_release.series(id);
ALTER TABLE ONLY of_a_release.labels
    ADD CONSTRAINT labels_series_id_fkey FOREIGN KEY (series_id) REFERENCES of_a_release.series(id);
ALTER TABLE ONLY of_a_release.origins
    ADD CONSTRAINT origins_blob_id_fkey FOREIGN KEY (blob_id) REFERENCES of_a_release.blobs(id);
ALTER TABLE ONLY of_a_release.origins
    ADD CONSTRAINT origins_series_id_fkey FOREIGN KEY (series_id) REFERENCES of_a_release.series(id);
ALTER TABLE ONLY of_a_release.profiles
    ADD CONSTRAINT profiles_blob_id_fkey FOREIGN KEY (blob_id) REFERENCES of_a_release.blobs(id);
ALTER TABLE ONLY of_a_release.profiles
    ADD CONSTRAINT profiles_series_id_fkey FOREIGN KEY (series_id) REFERENCES of_a_release.series(id);
