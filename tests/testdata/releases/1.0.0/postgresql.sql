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
INSERT INTO of_a_release.changes VALUES ('default', 'cpu', 4463537749028239605, 1795998980405724480, 20787, 5);
INSERT INTO of_a_release.changes VALUES ('lintd', 'cpu', 4463537749028239605, 1795998980635445645, 20787, 2);
INSERT INTO of_a_release.labels VALUES (1, 'version', '1');
INSERT INTO of_a_release.labels VALUES (3, 'instance', '0');
INSERT INTO of_a_release.labels VALUES (4, 'instance', '1');
INSERT INTO of_a_release.made VALUES (1795998980243049339);
INSERT INTO of_a_release.outbox VALUES (1, 'evt_fc2d1214a820c7151ee24a4791056a3d', 1795998980402917534, '{"type": "profile.stored", "id": "evt_fc2d1214a820c7151ee24a4791056a3d", "timestamp": "2026-11-30T00:36:20.402917534Z", "data": {"id": "default/cpu/version=1/2023-11-14/1700000097000000000-bd4d346a411495218a74bb530052a2970a19d740d7353a736c1b576e5151d5e3.pb.gz", "service": "default", "type": "cpu", "labels": {"version": "1"}, "time": "2023-11-14T22:14:57Z", "duration_seconds": 1.0, "bytes": 163, "samples": 1, "stored_at": "2026-11-30T00:36:20.402917534Z"}}', 0, 1795998980402917534);
INSERT INTO of_a_release.outbox VALUES (2, 'evt_3b168be27e0547667f3515688fa60e2f', 1795998980422912880, '{"type": "profile.stored", "id": "evt_3b168be27e0547667f3515688fa60e2f", "timestamp": "2026-11-30T00:36:20.422912880Z", "data": {"id": "default/cpu/version=1/2023-11-14/1700000098000000000-fa557ee39c710d54349751a278be7c5f2d80aad6a61e456ba9e5f6dc3c5f1b97.pb.gz", "service": "default", "type": "cpu", "labels": {"version": "1"}, "time": "2023-11-14T22:14:58Z", "duration_seconds": 1.0, "bytes": 163, "samples": 1, "stored_at": "2026-11-30T00:36:20.422912880Z"}}', 0, 1795998980422912880);
INSERT INTO of_a_release.outbox VALUES (3, 'evt_b0a9d50fd806137b2bbd105bfc1a9671', 1795998980434996013, '{"type": "profile.stored", "id": "evt_b0a9d50fd806137b2bbd105bfc1a9671", "timestamp": "2026-11-30T00:36:20.434996013Z", "data": {"id": "default/cpu/version=1/2023-11-14/1700000099000000000-93dae3cfd03467e019a0e51a5edf8656b673d68865b7230e0243f8fee1f00626.pb.gz", "service": "default", "type": "cpu", "labels": {"version": "1"}, "time": "2023-11-14T22:14:59Z", "duration_seconds": 1.0, "bytes": 163, "samples": 1, "stored_at": "2026-11-30T00:36:20.434996013Z"}}', 0, 1795998980434996013);
INSERT INTO of_a_release.outbox VALUES (4, 'evt_41074394a9d38df858838cd981f5e480', 1795998980616603878, '{"type": "profile.stored", "id": "evt_41074394a9d38df858838cd981f5e480", "timestamp": "2026-11-30T00:36:20.616603878Z", "data": {"id": "default/cpu/2023-11-15/1700086400000000000-78012391d96f635d2af5ad2758737ac1cafb80d8c5f8978e941a33c1a8131826.pb.gz", "service": "default", "type": "cpu", "labels": {}, "time": "2023-11-15T22:13:20Z", "duration_seconds": 1.0, "bytes": 162, "samples": 1, "stored_at": "2026-11-30T00:36:20.616603878Z"}}', 0, 1795998980616603878);
INSERT INTO of_a_release.outbox VALUES (5, 'evt_38009adae2e41718631c093b0514dd10', 1795998980624836405, '{"type": "profile.stored", "id": "evt_38009adae2e41718631c093b0514dd10", "timestamp": "2026-11-30T00:36:20.624836405Z", "data": {"id": "default/cpu/2023-11-15/1700086400000000000-e28e12d3b836ea639767a6f1c64b47845cd1e8b7b18dc1da3f274e93d29e369f.pb.gz", "service": "default", "type": "cpu", "labels": {}, "time": "2023-11-15T22:13:20Z", "duration_seconds": 1.0, "bytes": 161, "samples": 1, "stored_at": "2026-11-30T00:36:20.624836405Z"}}', 0, 1795998980624836405);
INSERT INTO of_a_release.outbox VALUES (6, 'evt_522c9e439c248498aa1204ebd0b4f233', 1795998980634497330, '{"type": "profile.stored", "id": "evt_522c9e439c248498aa1204ebd0b4f233", "timestamp": "2026-11-30T00:36:20.634497330Z", "data": {"id": "lintd/cpu/instance=0/2026-11-20/1795175904773537006-893453b0dbdd1c74cdba460538aa09094daffca2dd3e65698a7cf37a5c23d8be.pb.gz", "service": "lintd", "type": "cpu", "labels": {"instance": "0"}, "time": "2026-11-20T11:58:24.773537006Z", "duration_seconds": 5.031419119, "bytes": 25243, "samples": 302, "stored_at": "2026-11-30T00:36:20.634497330Z"}}', 0, 1795998980634497330);
INSERT INTO of_a_release.outbox VALUES (7, 'evt_10bf891363b3a46ede50629c4f0581b7', 1795998980643433333, '{"type": "profile.stored", "id": "evt_10bf891363b3a46ede50629c4f0581b7", "timestamp": "2026-11-30T00:36:20.643433333Z", "data": {"id": "lintd/cpu/instance=1/2026-11-20/1795175914903834199-b5d5845268520befe0cee85097ea440654bc6618d8e1b5a27ba6e441be2cf9e0.pb.gz", "service": "lintd", "type": "cpu", "labels": {"instance": "1"}, "time": "2026-11-20T11:58:34.903834199Z", "duration_seconds": 5.044364843, "bytes": 26623, "samples": 341, "stored_at": "2026-11-30T00:36:20.643433333Z"}}', 0, 1795998980643433333);
INSERT INTO of_a_release.profiles VALUES (1, 'bd4d346a411495218a74bb530052a2970a19d740d7353a736c1b576e5151d5e3', 1700000097000000000, 4);
INSERT INTO of_a_release.profiles VALUES (1, '93dae3cfd03467e019a0e51a5edf8656b673d68865b7230e0243f8fee1f00626', 1700000099000000000, 4);
INSERT INTO of_a_release.profiles VALUES (1, 'de109feeaf5b4530da11cb9dc0520577ae41d29f73385e5d81e58ac23b4d4764', 1700000097000000000, 4);
INSERT INTO of_a_release.profiles VALUES (1, 'fa557ee39c710d54349751a278be7c5f2d80aad6a61e456ba9e5f6dc3c5f1b97', 1700000098000000000, 4);
INSERT INTO of_a_release.profiles VALUES (2, '78012391d96f635d2af5ad2758737ac1cafb80d8c5f8978e941a33c1a8131826', 1700086400000000000, 6);
INSERT INTO of_a_release.profiles VALUES (2, 'e28e12d3b836ea639767a6f1c64b47845cd1e8b7b18dc1da3f274e93d29e369f', 1700086400000000000, 7);
INSERT INTO of_a_release.profiles VALUES (3, '893453b0dbdd1c74cdba460538aa09094daffca2dd3e65698a7cf37a5c23d8be', 1795175904773537006, 8);
INSERT INTO of_a_release.profiles VALUES (4, 'b5d5845268520befe0cee85097ea440654bc6618d8e1b5a27ba6e441be2cf9e0', 1795175914903834199, 9);
INSERT INTO of_a_release.retention VALUES (1795998980408711694);
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
