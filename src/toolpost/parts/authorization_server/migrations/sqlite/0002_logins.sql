-- Whose login it is and when it was last used, to list logins; and which ended lately, for the other gateways of the store.
ALTER TABLE login_grants ADD COLUMN caller TEXT NOT NULL DEFAULT '';
ALTER TABLE login_grants ADD COLUMN used_at REAL;
CREATE INDEX login_grants_revoked ON login_grants (revoked_at);
-- A browser has a new cookie once a person has logged in.
CREATE INDEX login_requests_browser ON login_requests (browser);
