"""Tables, figures and pages; computing is done before, drawing here."""
