"""The statements about models carried out, on either engine."""
